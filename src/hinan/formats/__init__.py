"""Bytes to values and back: images, facts, manifests, digests, typed values, messages. Specified in docs/formats/."""
