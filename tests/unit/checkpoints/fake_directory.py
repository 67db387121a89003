"""A directory of checkpoints that is a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.verdict import Look


@dataclass
class FakeDirectory(Directory):
    """Looks, texts and contents by path; a file has a size of 100 unless said otherwise."""

    looks: dict[str, Look] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    def sizes_of_files(self) -> Mapping[str, int]:
        return {path: self.sizes.get(path, 100) for path in (*self.looks, *self.texts, *self.contents)}

    def top_level_names(self) -> Sequence[str]:
        return tuple(dict.fromkeys(path.partition("/")[0] for path in self.sizes_of_files()))

    def sizes_below(self, name: str) -> Mapping[str, int]:
        self.listed.append(name)
        return {path: size for path, size in self.sizes_of_files().items() if path.partition("/")[0] == name}

    def look_into_files(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        for path in paths:
            yield path, self.look_into_file(path)

    def look_into_file(self, path: str) -> Look:
        self.looked.append(path)
        return self.looks[path]

    def text_of_file(self, path: str) -> str | None:
        return self.texts.get(path)

    def content_of_file(self, path: str) -> bytes | None:
        return self.contents.get(path)

    def drop(self, *paths: str) -> None:
        """Files get lost."""
        for path in paths:
            del self.looks[path]
