"""`python -m rein_warmstart.measure DIR`: what a policy can do on repairs it never saw, sampled at temperature 1.

Places and lines come from the folder named with `--source`, which the warm start never read. Prints one JSON line per
form: how often the look and the edit are well formed and copied exactly, how often the rollout ends properly, and how
far the choice of the new operator is from uniform (chi-square over its degrees of freedom; about 1 for a fair draw).
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from rein_warmstart.forms import FORMS, SUBMIT, Form
from rein_warmstart.rendering import Renderer
from rein_warmstart.repairs import Repair, RepairSource, alternatives, operators_on, source_lines
from rein_warmstart.traces import TURN_END, conversation, pieces

MAX_NEW_TOKENS = 96
_COMMAND = re.compile(r'<tool_call>\n\{"name": "(\w+)", "arguments": (\{.*\})\}\n</tool_call>', re.DOTALL)
_EDIT = re.compile(r"sed -i '(\d+)s\| (\S+) \| (\S+) \|' (\S+)")


@dataclass(slots=True)
class Score:
    """Counts over the repairs of one form."""

    num: int = 0
    looks_right: int = 0
    edits_right: int = 0
    """Right place, an operator of the line, another one of its kind."""
    ends_right: int = 0
    choices: Counter[tuple[str, str]] = field(default_factory=Counter)

    def summary(self, harness: str) -> dict[str, object]:
        shares = {
            "looks_right": self.looks_right / self.num,
            "edits_right": self.edits_right / self.num,
            "ends_right": self.ends_right / self.num,
        }
        return {"harness": harness, "num": self.num, **shares, "chi2_per_df": self.chi2_per_df()}

    def chi2_per_df(self) -> float | None:
        """Pearson's chi-square of the choices against uniform, over its degrees of freedom; None = too few."""
        statistic, freedom = 0.0, 0
        for wrong in {wrong for wrong, _ in self.choices}:
            others = alternatives(wrong)
            observed = [self.choices[wrong, other] for other in others]
            expected = sum(observed) / len(others)
            if expected >= 5 and len(others) > 1:
                statistic += sum((count - expected) ** 2 / expected for count in observed)
                freedom += len(others) - 1
        return round(statistic / freedom, 2) if freedom else None


class Sampler:
    """Samples the next assistant turn of many conversations at once."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        assert isinstance(model, LlamaForCausalLM)
        self.model = model

    def sample(self, prompts: Sequence[str]) -> list[str]:
        """One sampled text per prompt, without its turn end."""
        rows = [self.tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in prompts]
        longest, pad = max(map(len, rows)), self.model.config.pad_token_id
        token_ids = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        made = self.model.generate(  # type: ignore[misc]
            token_ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=MAX_NEW_TOKENS
        )
        texts = self.tokenizer.decode_batch(made[:, longest:].tolist(), skip_special_tokens=False)
        return [text.split(TURN_END)[0] for text in texts]


def score(sampler: Sampler, repairs: Sequence[Repair], *, form: Form) -> Score:
    """Each turn is judged after a faultless history, so that one turn's faults do not hide the next one's."""
    renderer = Renderer()
    cuts = [
        pieces(conversation(form, repair, today=date(2026, 12, 1)), renderer=renderer, form=form) for repair in repairs
    ]
    result = Score(num=len(repairs))
    for turn in range(3):
        prompts = ["".join(text for text, _ in cut[: 2 * turn + 1]) for cut in cuts]
        for repair, text in zip(repairs, sampler.sample(prompts), strict=True):
            _count(result, repair, turn, text, form)
    return result


def _count(result: Score, repair: Repair, turn: int, text: str, form: Form) -> None:
    command = _command(text, form)
    if turn == 0:
        result.looks_right += command == repair.look
    elif turn == 1:
        match = _EDIT.fullmatch(command or "")
        if match is None:
            return
        line, wrong, new, path = match.groups()
        is_there = (int(line), path) == (repair.line, repair.path) and wrong in operators_on(repair.source)
        if is_there and new in alternatives(wrong):
            result.edits_right += 1
            result.choices[wrong, new] += 1
    else:
        result.ends_right += (command == SUBMIT) if form.submits else (text == "Done.")


def _command(text: str, form: Form) -> str | None:
    match = _COMMAND.fullmatch(text)
    if match is None or match[1] != form.tool:
        return None
    try:
        arguments = json.loads(match[2])
    except json.JSONDecodeError:
        return None
    return str(arguments.get("command"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rein_warmstart.measure", description=__doc__)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="folder of Python files the warm start never read")
    parser.add_argument("--num", type=int, default=128, help="repairs per form")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    paths = [str(file.relative_to(options.source.parent)) for file in sorted(options.source.rglob("*.py"))]
    source = RepairSource(source_lines([options.source]), paths=paths, seed=options.seed, real_share=1.0)
    repairs = [source.draw() for _ in range(options.num)]
    sampler = Sampler(options.policy)
    for form in FORMS:
        print(json.dumps(score(sampler, repairs, form=form).summary(form.harness)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
