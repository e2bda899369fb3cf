"""Rein's event bus: one port (`ports`), two implementations (`kafka`, `memory`), one contract suite for both."""
