"""A strict reader of Prometheus' text format: what breaks a rule of it is an AssertionError."""

import http.client
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
TYPES = ("counter", "gauge", "histogram")


class Figures:
    """The metrics of one scrape."""

    def __init__(self, text):
        self.types = {}  # metric -> type
        self.samples = {}  # (sample name, labels as a frozenset of pairs) -> value
        assert text.endswith("\n"), "the last line has no end"
        helped, present = set(), None
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                name, _, words = line[7:].partition(" ")
                assert NAME.fullmatch(name) and words and name not in helped, line
                helped.add(name)
            elif line.startswith("# TYPE "):
                present, kind = line[7:].split(" ")
                assert present in helped and present not in self.types and kind in TYPES, line
                assert (kind == "counter") == present.endswith("_total"), line
                self.types[present] = kind
            else:
                self._take_sample(line, present)
        assert helped == set(self.types), helped ^ set(self.types)
        for name, kind in self.types.items():
            if kind == "histogram":
                self._check_histogram(name)

    def _take_sample(self, line, present):
        head, _, value = line.rpartition(" ")
        name, brace, rest = head.partition("{")
        assert NAME.fullmatch(name) and present is not None, line
        suffix = name.removeprefix(present)
        kinds = ("_bucket", "_sum", "_count") if self.types[present] == "histogram" else ("",)
        assert name.startswith(present) and suffix in kinds, f"{line}: not of {present}"
        labels = {}
        if brace:
            assert rest.endswith("}"), line
            rest = rest[:-1]
            while rest:
                found = LABEL.match(rest)
                assert found and found.group(1) not in labels, line
                labels[found.group(1)] = found.group(2)
                rest = rest[found.end():]
        key = (name, frozenset(labels.items()))
        assert key not in self.samples, f"{line}: twice"
        self.samples[key] = float(value)
        assert not math.isnan(self.samples[key]), line
        assert self.types[present] == "gauge" or self.samples[key] >= 0, line

    def _check_histogram(self, metric):
        series = {}
        for (name, labels), value in self.samples.items():
            if name == f"{metric}_bucket":
                rest = dict(labels)
                bound = float(rest.pop("le"))
                series.setdefault(frozenset(rest.items()), []).append((bound, value))
        for labels, buckets in series.items():
            buckets.sort()
            assert buckets[-1][0] == math.inf, metric
            counts = [count for _, count in buckets]
            assert counts == sorted(counts), f"{metric}: not cumulative: {buckets}"
            assert self.samples[f"{metric}_count", labels] == counts[-1], metric
            assert (f"{metric}_sum", labels) in self.samples, metric

    def value(self, sample, **labels):
        """The sample of exactly these labels; 0 if the metric has none of them yet."""
        metric = re.sub(r"_(bucket|sum|count)$", "", sample)
        assert sample in self.types or metric in self.types, f"no metric {sample}"
        return self.samples.get((sample, frozenset(labels.items())), 0.0)

    def total(self, sample, **labels):
        """The sum of all samples that have these labels among others."""
        return sum(value for (name, has), value in self.samples.items()
                   if name == sample and has >= set(labels.items()))


def scrape(port, host="127.0.0.1"):
    """The figures of an admin port."""
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        body = response.read().decode()
        assert response.status == 200, f"{response.status}: {body}"
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Figures(body)
    finally:
        connection.close()
