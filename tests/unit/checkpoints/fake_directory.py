"""A directory of checkpoints that is a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_sidecar.checkpoints.verdict import Look


@dataclass
class FakeDirectory:
    """Looks, texts and contents by path; a file has a size of 100 unless said otherwise."""

    looks: dict[str, Look] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    def files(self) -> Mapping[str, int]:
        return {path: self.sizes.get(path, 100) for path in (*self.looks, *self.texts, *self.contents)}

    def names(self) -> Sequence[str]:
        return tuple(dict.fromkeys(path.partition("/")[0] for path in self.files()))

    def below(self, name: str) -> Mapping[str, int]:
        self.listed.append(name)
        return {path: size for path, size in self.files().items() if path.partition("/")[0] == name}

    def look_all(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        for path in paths:
            yield path, self.look(path)

    def look(self, path: str) -> Look:
        self.looked.append(path)
        return self.looks[path]

    def text(self, path: str) -> str | None:
        return self.texts.get(path)

    def content(self, path: str) -> bytes | None:
        return self.contents.get(path)

    def drop(self, *paths: str) -> None:
        """Files get lost."""
        for path in paths:
            del self.looks[path]
