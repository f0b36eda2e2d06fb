"""Images: root file systems of instances. They are built from a definition or imported, stored, and converted
to the form that a runtime needs. This package does not depend on environments and workloads."""

from .config import ImageConfig
from .find import builtin_definition, builtin_names, find_image, known_names, no_image, require_image
from .store import Image, ImageStore, in_use
