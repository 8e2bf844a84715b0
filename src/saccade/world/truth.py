"""What a caption claims, and whether a scene makes it true: some choice of things must satisfy all its claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saccade.world.scene import Relation, Thing

ATTRIBUTES = ("kind", "colour", "size", "material")


@dataclass(frozen=True)
class Entity:
    """Something a caption speaks of: the attributes it states (None: unsaid), and how many such things (0: any)."""

    things: tuple[int, ...]
    kind: str | None = None
    colour: str | None = None
    size: str | None = None
    material: str | None = None
    exactly: int = 0

    def fits(self, thing: Thing) -> bool:
        return (
            (self.kind is None or self.kind == thing.kind)
            and (self.colour is None or self.colour == thing.colour)
            and (self.size is None or self.size == thing.size)
            and (self.material is None or self.material == thing.material)
        )


@dataclass(frozen=True)
class Meaning:
    """Entities, and relations between entities by their position here."""

    entities: tuple[Entity, ...] = ()
    claims: tuple[tuple[int, str, int], ...] = ()

    def holds(self, things: Sequence[Thing], relations: frozenset[Relation]) -> bool:
        """Search for distinct things that make every claim true."""
        options = [[i for i, thing in enumerate(things) if entity.fits(thing)] for entity in self.entities]
        for entity, fitting in zip(self.entities, options, strict=True):
            if not fitting or (entity.exactly and len(fitting) != entity.exactly):
                return False
        chosen: list[int] = []

        def search(at: int) -> bool:
            if at == len(options):
                return True
            if self.entities[at].exactly > 1:  # a group is claimed to be there, and related to nothing
                chosen.append(-1)
                found = search(at + 1)
                chosen.pop()
                return found
            for i in options[at]:
                if i in chosen:
                    continue
                chosen.append(i)
                sound = all(
                    Relation(chosen[s], p, chosen[o]) in relations for s, p, o in self.claims if max(s, o) == at
                )
                if sound and search(at + 1):
                    chosen.pop()
                    return True
                chosen.pop()
            return False

        return search(0)
