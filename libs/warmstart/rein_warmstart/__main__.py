"""`python -m rein_warmstart --out DIR`: make the demo's policy from nothing but this package and Python's own library.

Progress goes to standard error; the folder is complete when the command ends with status 0.
"""

import argparse
import itertools
import sys
import sysconfig
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from rein_warmstart.allocator import keep_freed_memory
from rein_warmstart.forms import FORMS
from rein_warmstart.policy import MAX_CONTEXT, make_policy, save_policy
from rein_warmstart.rendering import Renderer
from rein_warmstart.repairs import RepairSource, package_paths, source_lines
from rein_warmstart.tokenizer import save_tokenizer, train_tokenizer, word_pieces
from rein_warmstart.traces import conversation, pieces
from rein_warmstart.train import Schedule, batches, warm_start


def main() -> int:
    options = _options()
    first = options.resume_at
    keep_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_flush_denormal(True)
    torch.manual_seed(options.seed)
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    lines = source_lines([stdlib])
    paths = sorted(str(file.relative_to(stdlib)) for file in stdlib.rglob("*.py") if "site-packages" not in str(file))
    if first:  # the weights belong to the tokenizer they were trained with
        tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    else:
        texts = _sample_texts(RepairSource(lines, paths=paths, seed=options.seed + 1))
        tokenizer = train_tokenizer(itertools.chain(texts, lines[::4]), vocab_size=options.vocab)
        save_tokenizer(tokenizer, options.out, max_context=MAX_CONTEXT)
    words = word_pieces(tokenizer)
    places = package_paths(options.places) if options.places else []
    source = RepairSource(
        lines, paths=places or paths, seed=options.seed + 2 * first, word_pieces=words, real_share=options.real_share
    )
    pad, eos = (tokenizer.get_vocab()[text] for text in ("<|pad|>", "<|im_end|>"))
    model = make_policy(
        vocab_size=(tokenizer.get_vocab_size() + 63) // 64 * 64,
        hidden=options.hidden,
        layers=options.layers,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    if first:
        model.load_state_dict(load_file(options.out / "model.safetensors"))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(lines)} source lines, {num_parameters / 1e6:.1f} M parameters", file=sys.stderr)
    schedule = Schedule(drill_steps=options.drill_steps, steps=options.steps, batch=options.batch)

    def report(step: int, loss: float, tokens_per_s: float) -> None:
        print(f"step {step}/{schedule.total_steps} loss {loss:.4f} {tokens_per_s:.0f} tokens/s", file=sys.stderr)
        if step and step % 250 == 0:
            save_policy(model, options.out)

    stream = batches(tokenizer, source, schedule=schedule, seed=options.seed, pad_token_id=pad, first=first)
    warm_start(model, stream, schedule=schedule, report=report, first=first)
    save_policy(model, options.out)
    return 0


def _sample_texts(source: RepairSource, *, number: int = 4000) -> list[str]:
    from datetime import date

    renderer = Renderer()
    return [
        "".join(
            text
            for text, _ in pieces(
                conversation(form, source.draw(), today=date(2026, 1, 1)), renderer=renderer, form=form
            )
        )
        for form in FORMS
        for _ in range(number // len(FORMS))
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rein_warmstart", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--steps", type=int, default=Schedule().steps)
    parser.add_argument("--drill-steps", type=int, default=Schedule().drill_steps)
    parser.add_argument("--batch", type=int, default=Schedule().batch)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2040)
    parser.add_argument("--places", type=Path, help="folder of unpacked packages whose file names stand for real ones")
    parser.add_argument("--real-share", type=float, default=0.2, help="share of repairs at a real file name")
    parser.add_argument("--resume-at", type=int, default=0, help="go on from the weights in --out, at this step")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
