"""How a repair looks on the wire of each harness the demo uses, in the neutral form the gateway renders.

Taken from recorded requests of the pinned harness versions in the slim settings that `rein_harnesses` starts them with
(tests/golden). The texts here must follow those settings: a policy warmed on other prompts starts from nothing.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

INSTRUCTION = "Line {line} of {path} has one wrong operator. Repair it."
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

Message = dict[str, Any]

_REMINDER = (
    "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n# currentDate\n"
    "Today's date is {today}.\n\n      IMPORTANT: this context may or may not be relevant to your tasks. You should "
    "not respond to this context unless it is highly relevant to your task.\n</system-reminder>\n\n"
)


@dataclass(frozen=True, slots=True)
class Form:
    """One harness's way of putting a repair."""

    harness: str
    system: str
    tool: str
    parameters: tuple[str, ...]
    before_instruction: str
    """May hold {today}."""
    after_instruction: str
    line_ending: str
    """What follows the line that `sed -n` printed."""
    no_output: str
    """Result of a command that printed nothing."""
    submits: bool
    """Ends by a command instead of a text."""

    @property
    def tools(self) -> list[dict[str, Any]]:
        properties: dict[str, Any] = {name: {"type": "string"} for name in self.parameters}
        parameters = {"type": "object", "properties": properties}
        return [{"type": "function", "function": {"name": self.tool, "parameters": parameters}}]

    def opening(self, instruction: str, *, today: date) -> list[Message]:
        """System and user message."""
        before = self.before_instruction.format(today=today.isoformat())
        user = before + instruction + self.after_instruction
        return [{"role": "system", "content": self.system}, {"role": "user", "content": user}]

    def call(self, command: str) -> Message:
        function = {"name": self.tool, "arguments": {"command": command}}
        return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}

    def result(self, text: str) -> Message:
        return {"role": "tool", "content": text}

    def ending(self) -> Message:
        return self.call(SUBMIT) if self.submits else {"role": "assistant", "content": "Done."}


CLAUDE_CODE = Form(
    harness="claude-code",
    system=("You are a Claude agent, built on Anthropic's Claude Agent SDK.\n\nYou repair code with the Bash tool."),
    tool="Bash",
    parameters=("command", "timeout", "description", "run_in_background", "dangerouslyDisableSandbox"),
    before_instruction=_REMINDER,
    after_instruction="",
    line_ending="",
    no_output="(Bash completed with no output)",
    submits=False,
)

MINI_SWE_AGENT = Form(
    harness="mini-swe-agent",
    system="You repair code with the bash tool.",
    tool="bash",
    parameters=("command",),
    before_instruction="",
    after_instruction=f"\nWhen the repair is done, run: {SUBMIT}",
    line_ending="\n",
    no_output="",
    submits=True,
)

FORMS = (CLAUDE_CODE, MINI_SWE_AGENT)
