"""Root trees of other systems: built from a definition or imported, stored by digest, and converted to the
form that each runtime needs. This package knows no environment and no workload."""

from .find import builtin_definition, builtin_names, find_image, known_names, no_image, require_image
from .store import Image, ImageStore, in_use
