"""Converts the tree of an image to the forms that runtimes and other programs need, such as a tar file.

Each form is made on first use and stored next to the tree. Equal trees give files with equal bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ..errors import UnavailableError
from ..host import Host
from ..host.removal import remove_tree
from .build_errors import failure
from .digest import newest_time
from .oci import write_oci
from .store import Image, in_use, locked

MAKE_SECONDS = 1800.0


class Form(StrEnum):
    """Forms of an image.

    OCI: an archive that podman, Docker and skopeo accept.
    """

    DIRECTORY = "directory"
    TAR = "tar"
    OCI = "oci"
    SIF = "sif"
    SQUASHFS = "squashfs"
    EROFS = "erofs"


_FILES = {
    Form.TAR: "tree.tar",
    Form.OCI: "oci.tar",
    Form.SIF: "image.sif",
    Form.SQUASHFS: "tree.squashfs",
    Form.EROFS: "tree.erofs",
}
_PROGRAMS = {
    Form.TAR: ("tar", "tar"),
    Form.SIF: ("apptainer", "apptainer"),
    Form.SQUASHFS: ("mksquashfs", "squashfs-tools"),
    Form.EROFS: ("mkfs.erofs", "erofs-utils"),
}
"""Form -> (program that makes it, package of this program)."""


def in_form(host: Host, image: Image, form: Form, *, progress: Callable[[str], None]) -> Path:
    """Return the path of an image in a form: its tree, or a file. The file is made if it does not exist.

    progress: is called with a message before a long step.

    Raises UnavailableError if the program for the form is missing, BusyError while another process makes
    forms of this image, DiskFullError, RunError.
    """
    if form is Form.DIRECTORY:
        return image.tree
    directory = image.directory / "forms"
    file = directory / _FILES[form]
    if file.exists():
        return file
    with in_use(image):
        directory.mkdir(exist_ok=True)
        tar = in_form(host, image, Form.TAR, progress=progress) if form is Form.OCI else None
        with locked(directory / "lock", f"image {image.name}: a form is being made"):
            aside = directory / "making"
            remove_tree(aside)
            aside.mkdir()
            try:
                progress(f"image {image.name}: making its form {form}")
                made = aside / file.name
                if tar is not None:
                    write_oci(tar, made, image.name, newest_time(image.tree))
                else:
                    _run(host, image, form, made)
                made.rename(file)
            finally:
                remove_tree(aside)
    return file


def _run(host: Host, image: Image, form: Form, made: Path) -> None:
    program, package = _PROGRAMS[form]
    if host.which(program) is None:
        raise UnavailableError(
            f"image {image.name}: cannot make form {form}: {program} is not installed",
            remedy=f"apt-get install {package}",
        )
    env = {"SOURCE_DATE_EPOCH": str(newest_time(image.tree)), "LC_ALL": "C", "TMPDIR": str(made.parent)}
    argv = form_argv(form, image, made, root=host.is_root())
    done = host.run(argv, timeout=MAKE_SECONDS, env=env, cwd=Path("/"))
    if not done.ok:
        what, output = f"form {form} not made", done.stdout + done.stderr
        raise failure(image.name, what, program, done.returncode, output)


def form_argv(form: Form, image: Image, made: Path, *, root: bool) -> list[str]:
    """Return the command line that makes a form.

    made: path of the file to make.
    root: whether the owners of files are kept. If False, all files in the tree belong to this user, and
        belong to root in the form.
    """
    tree, out = str(image.tree), str(made)
    match form:
        case Form.TAR:
            owner = ["--numeric-owner", *(() if root else ("--owner=0", "--group=0"))]
            kept = ["--xattrs", "--xattrs-include=security.capability"]
            # Access and change times are left out; by default, the POSIX format contains them.
            posix = ["--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
            what = [f"--file={out}", f"--directory={tree}", "."]
            return ["tar", "--create", "--sort=name", *posix, *owner, *kept, *what]
        case Form.SQUASHFS:
            how = ["-noappend", "-no-progress", "-quiet", "-comp", "zstd", "-Xcompression-level", "3"]
            return ["mksquashfs", tree, out, *how, *(() if root else ("-all-root",))]
        case Form.EROFS:
            serial = uuid.uuid5(uuid.NAMESPACE_OID, image.digest)
            return ["mkfs.erofs", "-zlz4", f"-U{serial}", *(() if root else ("--all-root",)), out, tree]
        case Form.SIF:
            return ["apptainer", "build", "--force", out, tree]
        case Form.DIRECTORY | Form.OCI:
            raise AssertionError(form)
