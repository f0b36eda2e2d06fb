"""Commands about images: build, import, list, export, remove."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..api.images import (
    FORMS,
    build_image,
    convert_image,
    get_image,
    import_image,
    list_images,
    plan_build,
    remove_image,
)
from ..errors import ExitCode
from ..model.keys import alternatives
from .help_text import NearmetalCommand
from .options import Json
from .output import show
from .view import View

if TYPE_CHECKING:
    from ..api.images import Image
    from ..model.record import JsonValue

Name = typer.Argument(..., metavar="NAME", help="Name of the image.")

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command(cls=NearmetalCommand)
def build(
    name: str = Name,
    file: Path = typer.Option(
        None,
        "--file",
        metavar="FILE",
        help="A definition, or a study file with images; by default one that comes with nearmetal.",
    ),
    json: bool = Json,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be built, and build nothing."),
) -> int:
    """Build an image from its definition, if it is not there yet."""
    if dry_run:
        plan = asdict(plan_build(name, file))
        lines = (f"{k:<10}{', '.join(v) if isinstance(v, tuple) else v}" for k, v in plan.items() if v)
        show(plan, lines, json=json)
        return ExitCode.DONE
    with View(quiet=json) as view:
        image = build_image(name, file, progress=view.phase)
    _show(image, json=json)
    return ExitCode.DONE


@app.command("import", cls=NearmetalCommand)
def import_(
    path: Path = typer.Argument(
        ..., metavar="PATH", help="OCI layout or archive, Docker archive, SIF, directory or tar."
    ),
    name: str = typer.Option(..., "--name", metavar="NAME", help="Name of the new image."),
    json: bool = Json,
) -> int:
    """Import an image that was made elsewhere."""
    with View(quiet=json) as view:
        image = import_image(path, name, progress=view.phase)
        for text in image.config.notes():
            view.note(f"image {name}: {text}")
    _show(image, json=json)
    return ExitCode.DONE


@app.command("list", cls=NearmetalCommand)
def list_(json: bool = Json) -> int:
    """List the images that were built, and those that can be."""
    found = list_images()
    width = max(map(len, found), default=0)
    lines = (
        f"{name:<{width}}  not built; nearmetal image build {name}" if image is None else _line(image, width)
        for name, image in found.items()
    )
    absent: dict[str, JsonValue] = {"built": False}
    forms = [{"name": n, **absent} if i is None else _facts(i) for n, i in found.items()]
    show(forms, lines, json=json)
    return ExitCode.DONE


@app.command(cls=NearmetalCommand)
def export(
    name: str = Name,
    form: str = typer.Option(..., "--form", metavar="FORM", help=f"{alternatives(FORMS)}."),
    json: bool = Json,
) -> int:
    """Print the path of an image in another form.

    The form is made when it is first requested.
    """
    with View(quiet=json) as view:
        image, path = convert_image(name, form, progress=view.phase)
    show({"name": name, "form": form, "digest": image.digest, "path": str(path)}, [str(path)], json=json)
    return ExitCode.DONE


@app.command(cls=NearmetalCommand)
def remove(
    name: str = Name,
    json: bool = Json,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be removed, and remove nothing."),
) -> int:
    """Remove an image with all its forms."""
    image = get_image(name) if dry_run else remove_image(name)
    done = "would remove" if dry_run else "removed"
    form = {"name": name, "digest": image.digest, "removed": not dry_run}
    show(form, [f"{done}  {name}  {image.size / 2**20:.0f} MiB"], json=json)
    return ExitCode.DONE


def _facts(image: Image) -> dict[str, JsonValue]:
    return {
        "name": image.name,
        "built": True,
        "digest": image.digest,
        "origin": image.origin,
        "created": image.created,
        "bytes": image.size,
        "packages": list(image.packages),
        "tree": str(image.tree),
        "config": asdict(image.config),
    }


def _line(image: Image, width: int) -> str:
    return (
        f"{image.name:<{width}}  {image.digest[:12]}  {image.size / 2**20:5.0f} MiB"
        f"  {len(image.packages):4d} packages  {image.created}  {image.origin}"
    )


def _show(image: Image, *, json: bool) -> None:
    show(_facts(image), [_line(image, len(image.name))], json=json)
