"""`regard exercise`: problems to solve by hand, with checked answers."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.app import app
from regard.commands.output import print_json
from regard.commands.sources import JsonOption
from regard.errors import RegardError

__all__ = ["exercise"]

ACTIONS = ("list", "show", "hint", "answer", "solution")


@app.command(epilog="Example: regard exercise show 4")
def exercise(
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION", help="list, show, hint, answer or solution. A number alone means show."
        ),
    ] = "list",
    number: Annotated[int | None, typer.Argument(metavar="N", help="The exercise, from 1.")] = None,
    answer: Annotated[
        list[str] | None, typer.Argument(metavar="ANSWER", help="For answer: numbers, or a word.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Another seed poses the problem with other numbers.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Practise attention: exercises whose answers are checked, and whose mistakes are named.

    answer exits with status 1 if the answer is not right.
    """
    from regard.exercises import exercise as numbered

    if action.isdecimal() and number is None:
        action, number = "show", int(action)
    if action not in ACTIONS:
        raise RegardError(
            f"there is no action {action!r}; wanted {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}."
        )
    if action == "list":
        _list(as_json)
        return
    if number is None:
        raise RegardError(f"{action} which exercise? Give its number: regard exercise {action} 4.")
    chosen = numbered(number)
    posed = chosen.posed(seed)
    again = f" --seed {seed}" if seed else ""
    if action == "answer":
        if not answer:
            raise RegardError(f"the answer is missing: regard exercise answer {number}{again} NUMBERS.")
        graded = posed.grade(" ".join(answer))
        print_json({"right": graded.right, "text": graded.text}) if as_json else _say(graded.text)
        if not graded.right:
            raise typer.Exit(1)
        return
    text = {"show": posed.question, "hint": chosen.hint, "solution": posed.solution}[action]
    if as_json:
        print_json({"number": number, "title": chosen.title, "seed": seed, action: text})
    elif action == "show":
        _say(
            f"{number}. {chosen.title}",
            "",
            text,
            "",
            f"Answer with: regard exercise answer {number}{again} …",
        )
    else:
        _say(text)


def _list(as_json: bool) -> None:
    from regard.exercises import EXERCISES

    if as_json:
        print_json([{"number": one.number, "title": one.title, "lesson": one.lesson} for one in EXERCISES])
        return
    wide = max(len(one.title) for one in EXERCISES)
    lines = (f"{one.number:>2}  {one.title:<{wide}}  lesson {one.lesson}" for one in EXERCISES)
    _say(*lines, "", "regard exercise show 4")


def _say(*lines: str) -> None:
    for line in lines:
        typer.echo(line)
