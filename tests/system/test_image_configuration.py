"""An imported image with a configuration, as CI builds one: what it states for its programs holds in runs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import nearmetal

pytestmark = pytest.mark.more

IMAGE = "nearmetal-test-configuration"
STATED = {
    "Env": ["PATH=/opt/app/bin:/bin", "APP_STEPS=3", "GIVEN=image", "TYPED=image", "UCX_TLS=image"],
    "WorkingDir": "/opt/app",
    "User": "nobody",
    "Entrypoint": ["/opt/app/bin/start", "--now"],
}
SOLVER = """\
#!/bin/sh
echo "steps $APP_STEPS, given $GIVEN, typed $TYPED, home $HOME, in $PWD"
"""
STUDY = """\
name: configured
environments:
  native: {{backend: native, image: {image}}}
  box: {{backend: namespaces, image: {image}}}
placements: {{1x1: {{instances: 1, tasks: 1}}}}
workloads:
  stated: {{command: [solver], env: {{GIVEN: study}}, verify: {{regex: '{stated}'}}}}
  here: {{command: [sh, here.sh], verify: {{regex: 'in {here}$'}}}}
design: {{baseline: native, mode: plain, warm_up: 0}}
"""


def tree_of(programs: tuple[str, ...], root: Path) -> None:
    """Copy programs with their libraries to the same paths below root."""
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in (program, *re.findall(r"(/\S+) \(0x", said)):
            to = root / path.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(path), to)


def write_archive(root: Path, archive: Path) -> None:
    """Write an OCI archive with one layer and the configuration STATED."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as out:
        out.add(root, arcname=".")
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    content = blob("layer.v1.tar", layer.getvalue())
    system = {"architecture": "amd64", "os": "linux"}
    config = {**system, "config": STATED, "rootfs": {"type": "layers", "diff_ids": [content["digest"]]}}
    described = blob("config.v1+json", json.dumps(config).encode())
    manifest = {"schemaVersion": 2, "config": described, "layers": [content]}
    manifests = [blob("manifest.v1+json", json.dumps(manifest).encode())]
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
    with tarfile.open(archive, "w") as out:
        for name, data in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))


@pytest.fixture
def said(tmp_path: Path) -> Iterator[str]:
    """Import the image; yields what is said then."""
    for program in ("skopeo", "umoci"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    root = tmp_path / "root"
    tree_of(("/bin/sh",), root)
    for top in ("tmp", "proc", "sys", "dev", "run", "etc", "opt/app/bin"):
        (root / top).mkdir(parents=True, exist_ok=True)
    solver = root / "opt/app/bin/solver"
    solver.write_text(SOLVER)
    solver.chmod(0o755)
    write_archive(root, tmp_path / "app.tar")
    done = nearmetal(dict(os.environ), "image", "import", str(tmp_path / "app.tar"), "--name", IMAGE)
    assert done.returncode == 0, done.stderr
    yield done.stderr
    assert nearmetal(dict(os.environ), "image", "remove", IMAGE).returncode == 0


def test_what_an_image_states_holds_in_runs(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variables override the caller's, the study's override its; the caller's others pass."""
    assert "USER nobody is left out" in said
    assert "ENTRYPOINT is left out: begin the command with it (-- /opt/app/bin/start --now ...)" in said
    here = tmp_path / "here"
    here.mkdir()
    (here / "here.sh").write_text(SOLVER)
    stated = "steps 3, given study, typed image, home /by/hand, in /opt/app$"
    (here / "s.yaml").write_text(STUDY.format(image=IMAGE, stated=stated, here=here))
    monkeypatch.chdir(here)
    typed = {**os.environ, "TYPED": "shell", "HOME": "/by/hand", "PWD": str(here), "GIVEN": "shell"}
    typed |= {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
    done = nearmetal(typed, "run", "s.yaml", "--max-blocks", "1", "--json")
    assert done.returncode == 0, done.stderr
    (results,) = (here / "results").iterdir()
    recorded = json.loads((results / "provenance.json").read_text())["images"][IMAGE]["config"]
    assert recorded["env"]["APP_STEPS"] == "3" and recorded["directory"] == "/opt/app"
