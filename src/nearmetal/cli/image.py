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
from .common import print_json
from .help_text import NearmetalCommand
from .options import Json
from .view import View

if TYPE_CHECKING:
    from ..images import Image
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
        if json:
            print_json(plan)
        else:
            for key, value in plan.items():
                print(f"{key:<10}{', '.join(value) if isinstance(value, tuple) else value}")
        return int(ExitCode.DONE)
    with View(quiet=json) as view:
        image = build_image(name, file, progress=view.phase)
    _show(image, json=json)
    return int(ExitCode.DONE)


@app.command("import", cls=NearmetalCommand)
def import_(
    path: Path = typer.Argument(
        ..., metavar="PATH", help="OCI layout or archive, Docker archive, SIF, directory or tar."
    ),
    name: str = typer.Option(..., "--name", metavar="NAME", help="Name of the new image."),
    json: bool = Json,
) -> int:
    """Take an image that was made elsewhere."""
    with View(quiet=json) as view:
        image = import_image(path, name, progress=view.phase)
    _show(image, json=json)
    return int(ExitCode.DONE)


@app.command("list", cls=NearmetalCommand)
def list_(json: bool = Json) -> int:
    """List the images that were built, and those that can be."""
    found = list_images()
    if json:
        print_json([_facts(i) if i is not None else _absent(n) for n, i in found.items()])
        return int(ExitCode.DONE)
    width = max([16, *(len(name) + 2 for name in found)])
    for name, image in found.items():
        print(
            _line(image, width)
            if image is not None
            else f"{name:<{width}}not built; nearmetal image build {name}"
        )
    return int(ExitCode.DONE)


@app.command(cls=NearmetalCommand)
def export(
    name: str = Name,
    form: str = typer.Option(..., "--form", metavar="FORM", help=f"{', '.join(FORMS[:-1])} or {FORMS[-1]}."),
    json: bool = Json,
) -> int:
    """Print the path of an image in another form.

    The form is made when it is first requested.
    """
    with View(quiet=json) as view:
        image, path = convert_image(name, form, progress=view.phase)
    if json:
        print_json({"name": name, "form": form, "digest": image.digest, "path": str(path)})
    else:
        print(path)
    return int(ExitCode.DONE)


@app.command(cls=NearmetalCommand)
def remove(
    name: str = Name,
    json: bool = Json,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be removed, and remove nothing."),
) -> int:
    """Remove an image with all its forms."""
    image = get_image(name) if dry_run else remove_image(name)
    if json:
        print_json({"name": name, "digest": image.digest, "removed": not dry_run})
    else:
        print(f"{'would remove' if dry_run else 'removed'}  {name}  {image.size / 2**20:.0f} MiB")
    return int(ExitCode.DONE)


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
    }


def _absent(name: str) -> dict[str, JsonValue]:
    return {"name": name, "built": False}


def _line(image: Image, width: int = 16) -> str:
    return (
        f"{image.name:<{width}}{image.digest[:12]}  {image.size / 2**20:5.0f} MiB"
        f"  {len(image.packages):4d} packages  {image.created}  {image.origin}"
    )


def _show(image: Image, *, json: bool) -> None:
    if json:
        print_json(_facts(image))
    else:
        print(_line(image))
