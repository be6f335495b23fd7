"""Packages for tests that look as if they were installed in a folder: their metadata, and one module."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, package: str, entry_points: str, **modules: str) -> None:
    """Put a package into `folder`, which must be on the path of whoever imports it."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def plugin_package(folder: Path, package: str, *plugins: str, text: str = "def register(registry):\n    pass\n") -> None:
    """Install a package whose module, called like it, is what each of some plugins has `register` in."""
    module = package.replace("-", "_")
    points = "".join(f"{name} = {module}\n" for name in plugins)
    install(folder, package, f"[console_scripts]\nx = x:y\n\n[refold.plugins]\n{points}", **{module: text})
