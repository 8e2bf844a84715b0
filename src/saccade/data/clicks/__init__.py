"""Clicks: catalogues of items, impressions with what users did before, and logs of them that are larger than memory."""

from saccade.data.clicks.records import Catalogue, Clicks, HeldImpressions, ImpressionRows, Impressions, key_of

__all__ = ["Catalogue", "Clicks", "HeldImpressions", "ImpressionRows", "Impressions", "key_of"]
