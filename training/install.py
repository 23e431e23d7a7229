"""Put the results of a run where they belong: the model into the package, the losses beside this file.

    python -m training.install RESULTS [--data .train]

RESULTS is what `training.train` wrote. Fills MODEL_CARD.md from its template; nothing in it is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from string import Template

from training.export import save_curve

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "regard" / "models" / "data"
KINDS = {
    "previous": ("previous token", "the token before"),
    "sink": ("sink", "the first token"),
    "delimiter": ("delimiter", "marks that end sentences and paragraphs"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path, default=Path(".train"), help="folder training.prepare wrote")
    arguments = parser.parse_args()
    install(arguments.results, arguments.data, PACKAGE, HERE / "results")


def install(results: Path, data: Path, package: Path, kept: Path) -> None:
    """Copy the model and its tokenizer to `package`, the record of the run to `kept`, and write the card."""
    from tokenizers import Tokenizer

    package.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "config.json"):
        shutil.copyfile(results / name, package / name)
    shutil.copyfile(data / "tokenizer.json", package / "tokenizer.json")
    for name in ("losses.csv", "evaluation.json"):
        shutil.copyfile(results / name, kept / name)
    report = json.loads((results / "evaluation.json").read_text())
    save_curve(kept / "losses.csv", report["data"]["nats_per_token"], kept / "loss.png")
    size = (package / "model.safetensors").stat().st_size
    tokenizer = Tokenizer.from_file(str(package / "tokenizer.json"))
    (package / "MODEL_CARD.md").write_text(card(report, size, tokenizer), encoding="utf-8")


def card(report: dict, size: int, tokenizer) -> str:
    """The model card's text; a fact the report lacks is an error, not a gap."""
    shape, run, data, loss = report["shape"], report["run"], report["data"], report["loss"]
    settings = run["settings"]
    template = Template((HERE / "MODEL_CARD.template.md").read_text(encoding="utf-8"))
    return template.substitute(
        settings | shape,
        parameters_m=f"{shape['parameters'] / 1e6:.2f}",
        windowed=_windowed(shape),
        theta=f"{shape['theta']:g}",
        megabytes=f"{size / 1e6:.1f}",
        characters_per_token=f"{data['characters_per_token']:.2f}",
        train_books=data["books"]["train"],
        validation_books=data["books"]["validation"],
        long_books=data["books"]["long"],
        train_tokens_m=f"{data['tokens']['train'] / 1e6:.1f}",
        validation_tokens_k=f"{data['tokens']['validation'] / 1e3:.0f}",
        command=run["command"],
        steps=f"{run['steps']:,}",
        tokens_m=f"{run['tokens'] / 1e6:.0f}",
        epochs=run["epochs"],
        minutes=f"{run['seconds'] / 60:.1f}",
        machine=run["machine"],
        train_loss=f"{loss['train']:.3f}",
        gap=f"{loss['validation'] - loss['train']:.2f}",
        shortest=run["segments"][0],
        longest=f"{run['segments'][1]:,}",
        stages=_stages(settings["stages"]),
        position_table=_position_table(report["long"]),
        beyond_table=_beyond_table(report["beyond"], shape["context"]),
        needle_table=_needle_table(report["needles"]),
        needle_rows=report["needles"][0]["rows"],
        needle_depths=len(report["needles"][0]["depths"]),
        retrieval_heads=_strongest(_mean(report["needles"][0]["retrieval"])),
        chance=f"{math.log(shape['vocabulary']):.2f}",
        repetition_table=_repetition_table(report["repetition"]),
        reach=_reach(report["repetition"]),
        loss_table=_loss_table(data["nats_per_token"], loss["validation"]),
        head_table=_head_table(report["heads"]),
        samples=_samples(report["samples"], tokenizer),
    )


def _loss_table(baselines: dict[str, float], validation: float) -> str:
    rows = baselines | {"**this model**": validation}
    return "\n".join(f"| {name} | {x:.3f} | {math.exp(x):.1f} |" for name, x in rows.items())


def _head_table(heads: dict[str, list[list[float]]]) -> str:
    lines = []
    for kind, (name, target) in KINDS.items():
        lines.append(f"| {name} | {target} | {_strongest(heads[kind])} |")
    return "\n".join(lines)


def _repetition_table(measured: list[dict]) -> str:
    return "\n".join(
        f"| {x['period']} | {x['first']:.2f} | {x['second']:.3f} | {_strongest(x['induction'])} |"
        for x in measured
    )


def _windowed(shape: dict) -> str:
    every = shape["every"]
    return ", ".join(str(layer) for layer in range(shape["layers"]) if (layer + 1) % every == 0)


def _stages(stages: list[dict]) -> str:
    """Which contexts were read until when."""
    parts = (
        f"rows of {' and '.join(f'{n:,}' for n in stage['contexts'])} until {stage['until']:.0%} of the time"
        for stage in stages
    )
    return "; ".join(parts)


def _position_table(measured: list[dict]) -> str:
    return "\n".join(f"| {x['from']:,} to {x['to']:,} | {x['loss']:.3f} |" for x in measured)


def _beyond_table(measured: list[dict], context: int) -> str:
    """From half the context on, where the same tokens were read in short rows too."""
    lines = []
    for x in measured:
        if "apart" in x and x["to"] >= context:
            beyond = " (beyond what was trained)" if x["from"] >= context else ""
            lines.append(f"| {x['from']:,} to {x['to']:,}{beyond} | {x['loss']:.3f} | {x['apart']:.3f} |")
    return "\n".join(lines)


def _needle_table(measured: list[dict]) -> str:
    return "\n".join(
        f"| {x['tokens']:,} | {min(x['recalled']):.0%} | {sum(x['recalled']) / len(x['recalled']):.0%} | "
        f"{sum(x['log_probability']) / len(x['log_probability']):.3f} |"
        for x in measured
    )


def _mean(maps: list[list[list[float]]]) -> list[list[float]]:
    """Over the first axis."""
    return [[sum(x) / len(x) for x in zip(*layers, strict=True)] for layers in zip(*maps, strict=True)]


def _reach(measured: list[dict]) -> str:
    """Where induction works and where it does not: a head works that has half its weight where it should."""
    works = {x["period"]: max(map(max, x["induction"])) > 0.5 for x in measured}
    good, bad = ([str(period) for period in works if works[period] == wanted] for wanted in (True, False))
    sentences = []
    if good:
        sentences.append(f"Induction works at periods of {', '.join(good)} tokens.")
    if bad:
        sentences.append(
            f"No head has half its weight there at periods of {', '.join(bad)} tokens: induction fails."
        )
    return " ".join(sentences)


def _strongest(scores: list[list[float]]) -> str:
    ranked = sorted(((x, i, j) for i, layer in enumerate(scores) for j, x in enumerate(layer)))[::-1]
    return ", ".join(f"layer {i} head {j} ({x:.2f})" for x, i, j in ranked[:3])


def _samples(samples: dict[str, list[list[int]]], tokenizer) -> str:
    nothing = _quoted(tokenizer.decode(samples["from_nothing"][0]))
    page = samples["from_a_page"][0]
    # The prompt is END and 24 tokens; the bar shows where the model took over.
    opening, rest = tokenizer.decode(page[:25]), tokenizer.decode(page[25:])
    return f"{nothing}\n\n---\n\n{_quoted(opening + ' ▌' + rest)}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


if __name__ == "__main__":
    main()
