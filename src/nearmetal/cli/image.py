"""Commands about images: build, import, list, export, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ExitCode, UsageError
from ..host import LocalHost
from ..images import builtin_definition, builtin_names, find_image, known_names, require_image
from ..images.build import build as build_image
from ..images.forms import Form, in_form
from ..images.importing import import_image
from ..images.sources import archive_lines, resolved_suite
from ..images.store import checked_name
from ..node.machine import image_store
from ..study_file.environments.images import load_definition
from .common import print_json
from .help_text import NearmetalCommand
from .view import View

if TYPE_CHECKING:
    from ..images import Image
    from ..model.environments.image import ImageDefinition
    from ..model.record import JsonValue

Json = typer.Option(False, "--json", help="The result as JSON on standard output.")
Name = typer.Argument(..., metavar="NAME", help="Name of the image.")

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command(cls=NearmetalCommand)
def build(
    name: str = Name,
    file: Path = typer.Option(
        None,
        "--file",
        metavar="FILE",
        help="A definition, or a study with a section images; else one that comes with it.",
    ),
    json: bool = Json,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be built, and build nothing."),
) -> int:
    """Build an image from its definition, if it is not there yet."""
    host, store, definition = LocalHost(), image_store(), _definition(name, file)
    if dry_run:
        plan: dict[str, JsonValue] = {
            "name": name,
            "suite": resolved_suite(host, definition),
            "variant": definition.variant.value,
            "packages": list(definition.packages),
            "archives": list(archive_lines(host, definition)),
        }
        if json:
            print_json(plan)
        else:
            for key, value in plan.items():
                print(f"{key:<10}{', '.join(map(str, value)) if isinstance(value, list) else value}")
        return int(ExitCode.DONE)
    with View(quiet=json) as view:
        image = build_image(host, store, definition, progress=view.phase)
    _show(image, json=json)
    return int(ExitCode.DONE)


@app.command("import", cls=NearmetalCommand)
def import_(
    path: Path = typer.Argument(
        ..., metavar="PATH", help="OCI layout or archive, Docker archive, SIF, directory or tar."
    ),
    name: str = typer.Option(..., "--name", metavar="NAME", help="The name that it is given."),
    json: bool = Json,
) -> int:
    """Take an image that was made elsewhere."""
    with View(quiet=json) as view:
        image = import_image(LocalHost(), image_store(), path, name, progress=view.phase)
    _show(image, json=json)
    return int(ExitCode.DONE)


@app.command("list", cls=NearmetalCommand)
def list_(json: bool = Json) -> int:
    """List the images that were built, and those that can be."""
    host, store = LocalHost(), image_store()
    found = {name: find_image(host, store, name, {}) for name in known_names(store, {})}
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
    form: str = typer.Option(
        ..., "--form", metavar="FORM", help="directory, tar, oci, sif, squashfs or erofs."
    ),
    json: bool = Json,
) -> int:
    """Print the path of an image in another form.

    The form is made when it is first asked for."""
    if form not in list(Form):
        raise UsageError(f"no form {form}", remedy=f"one of {', '.join(Form)}")
    host, store = LocalHost(), image_store()
    image = require_image(host, store, name, {})
    with View(quiet=json) as view:
        path = in_form(host, image, Form(form), progress=view.phase)
    if json:
        print_json({"name": name, "form": form, "digest": image.digest, "path": str(path)})
    else:
        print(path)
    return int(ExitCode.DONE)


@app.command(cls=NearmetalCommand)
def remove(
    name: str = Name,
    json: bool = Json,
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be removed, and remove nothing."),
) -> int:
    """Remove an image with all its forms."""
    store = image_store()
    image = store.require(name) if dry_run else store.remove(name)
    if json:
        print_json({"name": name, "digest": image.digest, "removed": not dry_run})
    else:
        print(f"{'would remove' if dry_run else 'removed'}  {name}  {image.size / 2**20:.0f} MiB")
    return int(ExitCode.DONE)


def _definition(name: str, file: Path | None) -> ImageDefinition:
    checked_name(name)
    found = load_definition(file, name) if file is not None else builtin_definition(name)
    if found is None:
        raise UsageError(
            f"no image called {name} comes with nearmetal",
            remedy=f"one of {', '.join(builtin_names())}; one of your own: --file",
        )
    return found


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
