// Rates, percentiles and how figures are written. The gateway only counts: a rate is a difference of two readings.

export const SPAN_S = 10;

/* The value below which that share of a histogram lies, linear inside a bucket; null where nothing is counted. */
export function percentile(bounds, counts, share) {
  let total = 0;
  for (const count of counts) total += count;
  if (!total) return null;
  const rank = share * total;
  let below = 0, lower = 0;
  for (let at = 0; at < bounds.length; at += 1) {
    const here = counts[at];
    if (here && below + here >= rank) return lower + (bounds[at] - lower) * (rank - below) / here;
    below += here;
    lower = bounds[at];
  }
  return lower;
}

/* What happened between two readings of a model, `seconds` apart. */
export function between(was, now, seconds, bounds) {
  const offered = now.offered - was.offered, good = now.good - was.good;
  const batches = now.batches - was.batches;
  const counts = now.latency_counts.map((count, at) => count - (was.latency_counts[at] || 0));
  const missed = {};
  for (const [why, count] of Object.entries(now.missed)) {
    const more = count - (was.missed[why] || 0);
    if (more > 0) missed[why] = more;
  }
  const answers = {};
  for (const [name, count] of Object.entries(now.answers)) {
    const more = count - (was.answers[name] || 0);
    if (more > 0) answers[name] = more;
  }
  return {
    rate: (now.requests - was.requests) / seconds,
    goodput: good / seconds,
    rows: (now.rows - was.rows) / seconds,
    kept: offered > 0 ? good / offered : null,
    offered, good, missed, answers, counts,
    batch: batches > 0 ? (now.batch_rows - was.batch_rows) / batches : null,
    p50: percentile(bounds, counts, 0.5),
    p99: percentile(bounds, counts, 0.99),
  };
}

export const percent = (share, digits = 1) => share === null || share === undefined ? "–" : `${(share * 100).toFixed(share === 1 ? 0 : digits)} %`;
export const ms = (us) => us === null || us === undefined ? "–" : number(us / 1000);

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : size === 0 ? "0" : value.toFixed(2);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const gib = value / 2 ** 30;
  return gib >= 1 ? `${gib.toFixed(1)} GiB` : `${(value / 2 ** 20).toFixed(0)} MiB`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
}

export const clock = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
export const rankOf = (kept, objective) => kept === null || kept === undefined || !objective ? "" : kept >= objective ? "good" : kept >= 1 - 2 * (1 - objective) ? "doubtful" : "bad";
