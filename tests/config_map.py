"""A ConfigMap as Kubernetes mounts it, on a real file system."""

import shutil
from pathlib import Path


class ConfigMap:
    """A mounted ConfigMap, as the kubelet's AtomicWriter keeps it: `..data` links to a folder of the latest
    edition, each key links through that, and an update swaps `..data` and removes the old folder."""

    def __init__(self, mount: Path, text: str) -> None:
        self.mount = mount
        self.editions = 0
        mount.mkdir()
        self.write(text)
        (mount / "penstock.yaml").symlink_to("..data/penstock.yaml")

    def write(self, text: str) -> None:
        """Another edition, at one blow."""
        self.editions += 1
        edition, data = self.mount / f"..2026_11_22.{self.editions}", self.mount / "..data"
        before = data.readlink() if data.is_symlink() else None
        edition.mkdir()
        (edition / "penstock.yaml").write_text(text)
        (self.mount / "..data_tmp").symlink_to(edition.name)
        (self.mount / "..data_tmp").rename(data)
        if before is not None:
            shutil.rmtree(self.mount / before)
