"""Content-addressed blobs: what is too big for an event is stored here and the event carries its digest."""

from rein_blobs.errors import BlobDamaged, BlobMissing, BlobUnavailable
from rein_blobs.settings import BlobSettings
from rein_blobs.store import BlobStore

__all__ = ["BlobDamaged", "BlobMissing", "BlobSettings", "BlobStore", "BlobUnavailable"]
