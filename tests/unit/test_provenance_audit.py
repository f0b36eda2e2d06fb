"""Parity audit: the same questions in every arm, answered by the image's own programs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from nearmetal.host.base import Completed
from nearmetal.host.facts.audit import compare, facts, parse_ldd

LDD = """\tlinux-vdso.so.1 (0x00007ffd)
\tlibmpi.so.40 => /lib/libmpi.so.40 (0x00007f01)
\tlibgone.so.1 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)
"""
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
SYSTEM = """/proc/self/limits:Limit                     Soft Limit           Hard Limit           Units
/proc/self/limits:Max open files            1024                 4096                 files
/proc/sys/kernel/osrelease:6.18.4
/sys/kernel/mm/transparent_hugepage/enabled:always [madvise] never
/proc/cpuinfo:processor\t: 0
/proc/cpuinfo:flags\t\t: sse avx2
/proc/cpuinfo:processor\t: 1
/proc/cpuinfo:flags\t\t: sse avx2
"""


class Image:
    """Answers like the programs of an image; what is not here is 127, as the host says it."""

    def __init__(self, *, programs: Sequence[str] = ("grep", "ldd", "sha256sum")) -> None:
        self.programs = programs

    def __call__(self, argv: Sequence[str]) -> Completed:
        words = [w for w in argv if w not in ("env", "LC_ALL=C")]
        if words[0] not in self.programs:
            return self.done(argv, 127, "", f"{words[0]}: not found")
        if words[0] == "grep":
            return self.done(argv, 2, SYSTEM, "")
        if words[0] == "ldd":
            if words[1] == "/bin/script":
                return self.done(argv, 1, "\tnot a dynamic executable\n", "")
            return self.done(argv, 0, LDD, "")
        digests = {"/bin/nm": A, "/lib/libmpi.so.40": B, "/lib64/ld-linux-x86-64.so.2": C}
        out = "".join(f"{digests[p]}  {p}\n" for p in words[1:] if p in digests)
        err = "".join(f"sha256sum: {p}: No such file or directory\n" for p in words[1:] if p not in digests)
        return self.done(argv, 1 if err else 0, out, err)

    @staticmethod
    def done(argv: Sequence[str], code: int, out: str, err: str) -> Completed:
        return Completed(argv=tuple(argv), returncode=code, stdout=out, stderr=err, seconds=0.0)


def test_facts_of_an_instance() -> None:
    found = facts(Image(), ["/bin/nm", "/bin/script"])
    assert found["binary /bin/nm"] == f"sha256:{A}"
    assert found["binary /bin/script"] == "unavailable: No such file or directory"
    assert found["library libmpi.so.40"] == f"sha256:{B}"
    assert found["library ld-linux-x86-64.so.2"] == f"sha256:{C}"
    assert found["library libgone.so.1"] == "not found"
    assert found["kernel"] == "6.18.4"
    assert found["huge pages"] == "madvise"
    assert found["governor"] == "unavailable: no such file"
    assert found["CPU flags"] == "avx2 sse"
    assert found["limit open files"] == "1024 / 4096 files"
    assert not any("vdso" in name for name in found)


def test_an_image_without_the_programs_says_so() -> None:
    found = facts(Image(programs=()), ["/bin/nm"])
    assert found["binary /bin/nm"] == "unavailable: sha256sum ended with 127: not found"
    assert found["library of /bin/nm"] == "unavailable: ldd ended with 127: not found"
    assert found["CPU flags"] == "unavailable: grep ended with 127: not found"


def test_alike_is_no_difference() -> None:
    found = facts(Image(), ["/bin/nm"])
    assert compare({"native": found, "ns": dict(found)}) == ()
    assert compare({}) == ()


def test_differences_are_shown_by_arm() -> None:
    found = facts(Image(), ["/bin/nm"])
    other = {**found, "binary /bin/nm": f"sha256:{C}", "CPU flags": "sse"}
    del other["kernel"]
    by_name = {d.name: d.values for d in compare({"native": found, "vm": other})}
    assert by_name == {
        "binary /bin/nm": {"native": f"sha256:{A}", "vm": f"sha256:{C}"},
        "kernel": {"native": "6.18.4", "vm": "not checked"},
        "CPU flags": {"native": "avx2", "vm": "none of these"},
    }


@given(st.text(max_size=200))
def test_ldd_of_any_text(text: str) -> None:
    assert all(name and "/" not in name for name in parse_ldd(text))
