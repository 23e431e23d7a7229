"""Printed examples, judged."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from regard.checking import check
from regard.viewer.answers import CheckReport
from regard.viewer.routes.common import PROBLEMS

__all__ = ["router"]

router = APIRouter(prefix="/api/check", responses=PROBLEMS, tags=["check"])


class CheckRequest(BaseModel):
    """Printed numbers with their names, in any form that `regard check` reads."""

    text: str = Field(min_length=1, max_length=200_000)


@router.post("", response_model=CheckReport)
def judge(wanted: CheckRequest) -> dict[str, Any]:
    """Which printed numbers follow from the others, which do not, and why."""
    return check(wanted.text).to_dict()
