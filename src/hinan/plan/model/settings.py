"""The designer's words as a table: every setting with its unit, meaning and an example; text in, value out.

Owns:      names and meaning of the settings that the command line, the report and `nearest` share, and how each is read.
Promises:  texts that cannot be read are refused all at once, each with its name and an example.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hinan.core.errors import ConfigError
from hinan.core.units import parse_bytes, parse_bytes_per_s, parse_seconds
from hinan.plan.model.checks import imaginable, plain_number
from hinan.plan.model.failures import DAY_S, FailureTable, Tier, table, table_from_json
from hinan.plan.model.machines import machine

LONGEST_S = 1e6 * 365.25 * DAY_S
"""No plan is about longer times, and floats lose the seconds of a step beside them."""
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def parse_count(text: str) -> float:
    """A count from "16384", "16k", "405B", "1.8T", "405e9".

    Raises:
        ConfigError: not a number above zero.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE]\+?[0-9]+)?)\s*([kKmMbBgGtT]?)\s*", text)
    try:
        value = float(match.group(1)) * _SCALES[match.group(2).lower()] if match else math.nan
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f"{text!r} is not a count above zero; write it like '16384' or '405B'", value=text)
    return value


def parse_whole(text: str) -> int:
    """A whole count.

    Raises:
        ConfigError: not whole, or not above zero.
    """
    value = parse_count(text)
    if value != int(value):
        raise ConfigError(f"{text!r} is not a whole number", value=text)
    return int(value)


def parse_ratio(text: str) -> float:
    """A share from "0.5%" or "0.005".

    Raises:
        ConfigError: not between 0 and 1.
    """
    bare = text.strip()
    value = plain_number(bare[:-1]) / 100 if bare.endswith("%") else plain_number(bare)
    if not 0 <= value <= 1:
        raise ConfigError(f"{text!r} is not a share between 0 and 1; write it like '0.5%'", value=text)
    return value


def parse_share(text: str) -> float:
    """A share above zero."""
    value = parse_ratio(text)
    if value == 0:
        raise ConfigError(f"{text!r}: a share above zero is needed", value=text)
    return value


def _in_percent(parse: Callable[[str], float]) -> Callable[[str], float]:
    """A share that is small wherever it is meant: a bare 1 is one per cent or all of it, and refused with both."""

    def parsed(text: str) -> float:
        value = parse(text)
        if value == 1 and not text.strip().endswith("%"):
            raise ConfigError(f"{text!r} may mean a hundredth or all of it; write '1%' or '100%'", value=text)
        return value

    return parsed


def parse_bandwidth(text: str) -> float:
    """Bytes per second from "55.1GB/s" or "440Gb/s".

    Raises:
        ConfigError: not a bandwidth above zero, or one without its "/s".
    """
    return _above_zero(parse_bytes_per_s(text), text)


def _above_zero(value: float, text: str) -> float:
    if value <= 0:
        raise ConfigError(f"{text!r} must be above zero", value=text)
    return value


def _duration(text: str) -> float:
    value = _above_zero(parse_seconds(text), text)
    if value > LONGEST_S:
        raise ConfigError(f"{text!r} is longer than a million years", value=text)
    return value


def _duration_or_zero(text: str) -> float:
    return 0.0 if text.strip() == "0" or parse_seconds(text) == 0 else _duration(text)


def _size(text: str) -> float:
    return _above_zero(float(parse_bytes(text, bare=False)), text)


def _size_in_bytes(text: str) -> float:
    """A size whose setting names the unit of a bare number."""
    return _above_zero(float(parse_bytes(text)), text)


def _number_above_zero(text: str, what: str, example: str) -> float:
    value = plain_number(text)
    if not 0 < value < math.inf:
        raise ConfigError(f"{text!r} is not a {what} above zero; write it like {example}", value=text)
    imaginable(value, text)
    return value


def _rate(text: str) -> float:
    rate = _number_above_zero(text, "rate", "'0.00379'")
    if rate > DAY_S:
        raise ConfigError(f"{text!r} a day is more than one failure per second of every node", value=text)
    return rate


def _price(text: str) -> float:
    return _number_above_zero(text, "price", "'4'")


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """Tiers from "ram,peer,shared".

    Raises:
        ConfigError: an unknown tier.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Tier)]
    if unknown or not names:
        raise ConfigError(f"{text!r}: tiers are {', '.join(Tier)}", value=text)
    return tuple(tier for tier in Tier if tier in names)


def _budget(text: str) -> tuple[str, float]:
    if text.strip().endswith("%"):
        return "max_loss_ratio", parse_share(text)
    bare = re.sub(r"(?i)\s*usd(/day)?$", "", text.strip())
    return "max_usd_per_day", _number_above_zero(bare, "share or price", "'5%' or '100000USD'")


def _mode(text: str) -> str:
    if text not in ("auto", "ram", "ring", "gds"):
        raise ConfigError(f"{text!r}: mode is auto, ram, ring or gds", value=text)
    return text


def _peers(text: str) -> int:
    if not re.fullmatch(r"[0-8]", text.strip()):
        raise ConfigError(f"{text!r}: peer copies are a whole number from 0 to 8", value=text)
    return int(text)


def _table(text: str) -> FailureTable:
    path = Path(text)
    if not text.endswith(".json"):
        return table(text)
    try:
        return table_from_json(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"failure table {text}: {error}") from error


@dataclass(frozen=True)
class Setting:
    """One word of the designer."""

    parse: Callable[[str], Any]
    example: str
    help: str


SETTINGS: Mapping[str, Setting] = {
    "gpus": Setting(parse_whole, "1024", "GPUs of the job"),
    "params": Setting(parse_count, "70B", "parameters of the model; 14 bytes of state each"),
    "state-bytes": Setting(_size_in_bytes, "1TB", "state kept, once for the job"),
    "keep": Setting(parse_share, "0.5", "share of HBM that is kept, instead of --state-bytes"),
    "preset": Setting(machine, "dgx-h100", "machine: dgx-h100, hgx-h200, gb200, mi300x, small-cloud"),
    "gpus-per-node": Setting(parse_whole, "8", "GPUs of a node"),
    "hbm": Setting(_size, "80GB", "HBM of a GPU"),
    "d2h": Setting(parse_bandwidth, "55GB/s", "HBM to pinned RAM, one GPU"),
    "dram": Setting(parse_bandwidth, "490GB/s", "memory traffic a node can bear"),
    "nvme": Setting(parse_bandwidth, "25GB/s", "NVMe write of a node"),
    "nvme-read": Setting(parse_bandwidth, "50GB/s", "NVMe read of a node"),
    "nic": Setting(parse_bandwidth, "400GB/s", "network of a node"),
    "gds": Setting(parse_bandwidth, "20GB/s", "HBM to NVMe by GPUDirect Storage, a node"),
    "usd-per-gpu-hour": Setting(_price, "4", "price of a GPU-hour"),
    "shard-gpus": Setting(parse_whole, "1024", "GPUs that share one copy of the state; fewer than --gpus: replicas"),
    "step": Setting(_duration, "5s", "training step; intervals then come in whole steps"),
    "hidden": Setting(parse_ratio, "0.8", "share of the copy hidden behind forward and backward"),
    "stall": Setting(_duration, "5min", "training time one save to the fastest tier takes"),
    "floor": Setting(_duration_or_zero, "5ms", "stall that no bandwidth removes"),
    "drain": Setting(_duration, "5min", "time to drain to the shared tier"),
    "store-bandwidth": Setting(parse_bandwidth, "100GB/s", "shared store, writing, whole job"),
    "store-read-bandwidth": Setting(parse_bandwidth, "200GB/s", "shared store, reading, whole job"),
    "interference": Setting(_in_percent(parse_ratio), "2%", "slow-down of training while draining"),
    "mtti": Setting(_duration, "3h", "mean time to interruption of the whole job"),
    "failures": Setting(_table, "llama3", "failure table: llama3, rsc1, rsc2, infinitehbd, or a JSON file"),
    "rate": Setting(_rate, "0.00379", "failures per node-day, mix of classes as in the table"),
    "restart": Setting(_duration, "5min", "whole restart after any failure"),
    "detect": Setting(_duration_or_zero, "30s", "detection, for all classes"),
    "reschedule": Setting(_duration_or_zero, "1min", "getting nodes and processes back, for all classes"),
    "load": Setting(_duration_or_zero, "10s", "bringing the state back into HBM, from any tier"),
    "init": Setting(_duration_or_zero, "40s", "start of processes and communicators, for all classes"),
    "init-growth": Setting(_duration_or_zero, "10s", "more of it for every 1,000 nodes"),
    "replay": Setting(_duration_or_zero, "0s", "what the loop does again beside lost steps: a loader finding its place"),
    "latency": Setting(_duration, "1h", "most time from silent corruption to its detection: verified as often"),
    "verify": Setting(_duration, "1s", "training time one verification takes"),
    "repair": Setting(_duration, "1d", "time a failed node is out"),
    "nodes-return": Setting(parse_ratio, "90%", "share of rack and power failures after which the nodes come back"),
    "interval": Setting(_duration, "5min", "judge this interval instead of searching"),
    "max-redo": Setting(_duration, "2min", "most training one failure may cost, silent corruption aside"),
    "max-stall": Setting(_in_percent(parse_share), "0.5%", "most training time that saving may cost"),
    "max-rto": Setting(_duration, "5min", "longest restart allowed"),
    "ram": Setting(_size, "1TB", "RAM of a node that evacuation may use"),
    "tiers": Setting(parse_tiers, "ram,peer,nvme,shared", "use exactly these tiers"),
    "mode": Setting(_mode, "auto", "where the copy lands: auto, ram, ring, gds"),
    "peers": Setting(_peers, "1", "peer copies in RAM, 0 for none"),
    "budget": Setting(_budget, "5%", "most that may be lost in all: a share, or USD per day"),
}


def as_option(name: str, text: str) -> str:
    """A setting as `hinan plan` takes it."""
    return f"--{name} {text}"


class Unreadable(ConfigError):
    """Words of which no value can be made: a mistake in typing, to which no design is an answer."""

    def __init__(self, reasons: Mapping[str, str], word: Callable[[str, str], str] = as_option) -> None:
        """Args:
        reasons: for each setting why it cannot be read.
        word: a setting's name and value as the verb takes them.
        """
        said = []
        for name, reason in reasons.items():
            way_out = word(name, SETTINGS[name].example)
            said.append(f"{way_out.removesuffix(SETTINGS[name].example)[:-1]}: {reason} (an example: {way_out})")
        super().__init__("; ".join(said))
        self.reasons = reasons


def read(settings: Mapping[str, str]) -> dict[str, Any]:
    """Texts to values.

    Raises:
        Unreadable: all words that cannot be read, each with an example that can.
        ConfigError: an unknown setting.
    """
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name, text in settings.items():
        if name not in SETTINGS:
            raise ConfigError(f"no setting {name!r}; known: {', '.join(SETTINGS)}", name=name)
        try:
            values[name] = SETTINGS[name].parse(text)
            if isinstance(values[name], int | float):
                imaginable(values[name], text)
        except ConfigError as error:
            unreadable[name] = str(error)
    if unreadable:
        raise Unreadable(unreadable)
    return values
