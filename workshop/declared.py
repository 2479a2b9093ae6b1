"""Store the settings of all declared runs, so that records are sorted without composing each.

Composing a run takes 0.1 s, and there are some 900. A test fails while the file is of other files
in conf/ than there are; records are then sorted rightly, but slowly.

    python -m workshop.declared
"""

import json

from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.runs.sweeps import (
    DECLARED,
    Settings,
    compose_settings,
    declared_sweep,
    settings_stamp,
)


def declared_settings() -> dict[str, Settings]:
    """The settings of each declared run at the paper's scale, by its words."""
    settings: dict[str, Settings] = {}
    for experiment in catalogue().experiments():
        for words in declared_sweep(experiment, "paper").spellings():
            composed = compose_settings(words)
            if composed is not None:
                settings[" ".join(words)] = composed
    return settings


def main() -> None:
    settings = declared_settings()
    entries = {words: list(settings[words]) for words in sorted(settings)}
    document = {"made_of": settings_stamp(), "settings": entries}
    DECLARED.write_text(json.dumps(document, indent=0) + "\n")
    print(f"{len(settings)} settings: {DECLARED}")


if __name__ == "__main__":
    main()
