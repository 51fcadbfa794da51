// A screenshot as a small picture: the mean colour of each block. Of two of them, how far they are apart.
async ([shot, before, block]) => {
  const drawn = async (data, scale) => {
    const image = await createImageBitmap(await (await fetch(data)).blob());
    const canvas = new OffscreenCanvas(Math.ceil(image.width / scale), Math.ceil(image.height / scale));
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    const full = new OffscreenCanvas(image.width, image.height).getContext("2d", { willReadFrequently: true });
    full.drawImage(image, 0, 0);
    const small = pen.createImageData(canvas.width, canvas.height);
    for (let row = 0; row < canvas.height; row += 1) for (let column = 0; column < canvas.width; column += 1) {
      const width = Math.min(scale, image.width - column * scale), height = Math.min(scale, image.height - row * scale);
      const { data: from } = full.getImageData(column * scale, row * scale, width, height);
      for (let channel = 0; channel < 4; channel += 1) {
        let sum = 0;
        for (let at = channel; at < from.length; at += 4) sum += from[at];
        small.data[(row * canvas.width + column) * 4 + channel] = Math.round(sum / (width * height));
      }
    }
    pen.putImageData(small, 0, 0);
    return [canvas, small];
  };
  const [canvas, now] = await drawn(shot, block);
  const text = await new Promise(async (resolve) => { const reader = new FileReader(); reader.onload = () => resolve(reader.result); reader.readAsDataURL(await canvas.convertToBlob()); });
  if (!before) return { text };
  const [, was] = await drawn(before, 1);
  if (was.width !== now.width || was.height !== now.height) return { text, size: `${now.width}x${now.height}, not ${was.width}x${was.height}` };
  let sum = 0, far = 0;
  for (let at = 0; at < now.data.length; at += 4) {
    const apart = Math.max(...[0, 1, 2].map((channel) => Math.abs(now.data[at + channel] - was.data[at + channel])));
    sum += apart;
    far += apart > 24;
  }
  return { text, mean: sum / (now.data.length / 4), far: far / (now.data.length / 4) };
}
