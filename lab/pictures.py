"""Draws the reports: one SVG for each of the paper's figures, and one for `baton bench disturbance`. Nothing is measured here.

`python -m lab.pictures NAME REPORTS FOLDER` draws the report of one experiment."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
# The same report gives the same file.
matplotlib.rcParams["svg.hashsalt"] = "baton"
matplotlib.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot  # noqa: E402 (after the backend is chosen)

MODES = (("off", "chaining off", "s--"), ("on", "chaining on", "o-"))


def draw(name, reports, folder):
    """Draws what belongs to one experiment's report."""
    report = json.loads((reports / f"{name}.json").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    for file, axes in _PICTURES[name.partition("-")[0]](report):
        axes.grid(alpha=0.3)
        axes.figure.savefig(folder / file, metadata={"Date": None}, bbox_inches="tight")
        pyplot.close(axes.figure)
        print(f"lab: {folder / file}", flush=True)


def _axes(title, x, y):
    _, axes = pyplot.subplots(figsize=(6, 3.6))
    axes.set(title=title, xlabel=x, ylabel=y)
    return axes


def _curves(report, title, y, value):
    axes = _axes(title, "majority writes a second", y)
    for mode, label, style in MODES:
        points = report["curves"][mode]
        axes.plot([point["perSecond"] for point in points], [value(point) for point in points], style, label=label)
        for point in points:
            axes.annotate(point["clients"], (point["perSecond"], value(point)), fontsize=7,
                          textcoords="offset points", xytext=(3, 3))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend()
    return axes


def _chaining(report):
    yield "latency-p50.svg", _curves(report, "Two sites: median latency (numbers are clients)", "ms",
                                     lambda point: point["latencyMs"]["p50"])
    yield "latency-p90.svg", _curves(report, "Two sites: 90th percentile of latency", "ms",
                                     lambda point: point["latencyMs"]["p90"])
    yield "bytes-between-sites.svg", _curves(report, "Two sites: from the primary's site to the other", "MB/s",
                                             lambda point: point["crossedMbytePerSecond"])


def _uplink(report):
    title = f"Three members, the primary's link held to {report['mbit']} Mbit/s"
    yield "uplink.svg", _curves(report, title, "median latency, ms", lambda point: point["latencyMs"]["p50"])


def _failover(report):
    axes = _axes("The primary is killed, and returns", "seconds", "majority writes a second")
    axes.plot(*zip(*report["series"]), linewidth=0.8)
    for event, label in (("killed", "killed"), ("returned", "started again")):
        axes.axvline(report["events"][event], color="gray", linestyle=":")
        axes.annotate(label, (report["events"][event], axes.get_ylim()[1] * 0.05), fontsize=8,
                      textcoords="offset points", xytext=(4, 0))
    axes.set_ylim(bottom=0)
    yield "failover.svg", axes


def _lag(report):
    axes = _axes("Commit lag at the primary's full update rate", "seconds", "ms")
    axes.plot(*zip(*report["samples"]), ".", markersize=3)
    axes.axhline(report["lagMs"]["p99"], color="gray", linestyle=":", label=f"p99 {report['lagMs']['p99']:.0f} ms")
    axes.set_ylim(bottom=0)
    axes.legend()
    yield "lag.svg", axes


def _disturbance(report):
    for run in report["runs"]:
        shown = run["report"]
        title = f"Three members, {report['records']} documents: the longest request of each moment"
        axes = _axes(title + ("" if len(report["runs"]) == 1 else f" ({run['name']})"), "seconds", "ms")
        axes.figure.set_size_inches(14, 5)
        axes.set_yscale("log")
        for role, color in (("reader", "tab:green"), ("writer", "tab:blue")):
            axes.plot(*zip(*shown["longestMs"][role]), ".", markersize=2, color=color, label=role, rasterized=True)
        for event in shown["events"]:
            start, end = event["startSecs"], event["startSecs"] + max(event["endedSecs"] - event["waitedSecs"], 1)
            axes.axvspan(start, end, color="gray", alpha=0.2, linewidth=0)
            name = event["event"] + (" (refused)" if event["refused"] else "")
            axes.annotate(name, ((start + end) / 2, 0.98), xycoords=("data", "axes fraction"), fontsize=7, rotation=90,
                          ha="center", va="top")
        axes.legend(loc="lower left", bbox_to_anchor=(1, 0))
        yield "disturbance.svg" if run["name"] == "now" else f"disturbance-{run['name']}.svg", axes


def _leadership(report):
    """As the paper's Figures 2 to 4: throughput over time, elections and the members' work above it; the first round of each variant."""
    variants = list(report["rows"])
    figure, rows = pyplot.subplots(len(variants), 1, figsize=(9, 2.6 * len(variants)), sharex=True, sharey=True, squeeze=False)
    top = 1.35 * max(max(report["rows"][variant][0]["perSecond"], default=0) for variant in variants)
    for (axes,), variant in zip(rows, variants):
        row = report["rows"][variant][0]
        # The last second is not a whole one.
        whole = row["perSecond"][:-1]
        axes.plot(range(len(whole)), whole, linewidth=0.9, color="tab:blue")
        axes.set(ylabel="requests a second", ylim=(0, top))
        axes.set_title(f"{variant}: {row['all']['perSecond']:.0f} a second, {row['moves']} moves", fontsize=9, loc="left")
        before = None
        for at, primary, working in row["seen"]:
            if primary is not None and primary != before:
                axes.plot([at], [top * (0.97 - 0.06 * primary)], "s", markersize=5, color=f"C{primary + 1}")
                axes.axvline(at, color=f"C{primary + 1}", linestyle=":", linewidth=0.8)
                before = primary
            for member in working:
                axes.plot([at, at + 0.2], [top * (0.97 - 0.06 * member)] * 2, linewidth=3, alpha=0.5, color=f"C{member + 1}", solid_capstyle="butt")
        axes.grid(alpha=0.3)
    for member in range(report["members"]):
        rows[0][0].plot([], [], "s-", color=f"C{member + 1}", label=f"node {member + 1}")
    rows[0][0].legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, title="squares: elected\nlines: at work", title_fontsize=8)
    rows[-1][0].set_xlabel("seconds")
    yield f"leadership-{report['part']}.svg", rows[-1][0]


def _priority(report):
    """By what was measured."""
    yield from {"deadlines": _deadlines, "hour": _hour}.get(report.get("kind"), _classes)(report)


def _deadlines(report):
    """What share of the requests was in time, in each round."""
    axes = _axes(f"Requests with deadlines of 1 to 100 ms, {report['load']} times what there is time for", "round", "share in time")
    rounds = range(1, len(report["rows"]["full"]) + 1)
    full = report["rows"]["full"]
    for label, values, style in (("an oracle", [row["share"] / row["ofOracle"] for row in full], "k--"),
                                 ("mode full", [row["share"] for row in full], "o-"),
                                 ("mode off", [row["share"] for row in report["rows"]["off"]], "s-"),
                                 ("first come, first served", [row["inTurn"] for row in full], "k:")):
        axes.plot(rounds, values, style, markersize=4, label=label)
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)
    yield f"priority-{report['part']}.svg", axes


def _hour(report):
    """The longest wait at the door so far of each class, and for how long another member was not heard of."""
    axes = _axes(f"{report['seconds'] // 60} minutes of more than a member can do", "minutes", "ms")
    minutes = [at / 60 for at, *_ in report["samples"]]
    for kind in report["classes"]:
        axes.plot(minutes, [waits[kind] for *_, waits in report["samples"]], label=f"{kind}: waited the most so far")
    if report["members"] > 1:
        axes.plot(minutes, [silence for _, _, silence, _ in report["samples"]], ".", markersize=2, label="since another was heard", rasterized=True)
    axes.axhline(report["worstWaitMs"], color="gray", linestyle=":", label="the worst wait that is promised")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    yield f"priority-{report['part']}.svg", axes


def _classes(report):
    """As the paper's Figures 4, 6 and 7: a box of latencies for each mode and class, whiskers at 5 and 95 %; and its Figure 5, over time."""
    classes = list(report["clients"])
    variants = ["alone", "none", *(variant for variant in report["summary"] if variant not in ("alone", "none"))]
    figure, axes = pyplot.subplots(figsize=(1.5 + 0.45 * len(variants) * len(classes), 3.6))
    boxes, places, colors = [], [], []
    for index, variant in enumerate(variants):
        for offset, kind in enumerate(classes):
            found = report["summary"][variant].get(kind)
            if found:
                boxes.append({"med": found["p50"], "q1": found["p25"], "q3": found["p75"], "whislo": found["p5"], "whishi": found["p95"], "fliers": []})
                places.append(index * (len(classes) + 1) + offset)
                colors.append(f"C{offset}")
    drawn = axes.bxp(boxes, positions=places, widths=0.7, patch_artist=True, showfliers=False)
    for box, color in zip(drawn["boxes"], colors):
        box.set(facecolor=color, alpha=0.6)
    middle = (len(classes) - 1) / 2
    axes.set_xticks([index * (len(classes) + 1) + middle for index in range(len(variants))], variants)
    for offset, kind in enumerate(classes):
        axes.plot([], [], "s", color=f"C{offset}", label=f"{report['clients'][kind]} {kind}")
    axes.set(ylabel="ms", ylim=(0, None))
    axes.set_title(f"w: {report['w']}, members: {report['members']}, processors of the primary: {report['cores']}", fontsize=9)
    axes.legend(fontsize=8)
    yield f"priority-{report['part']}.svg", axes
    axes = _axes("Answers over time, mode full", "seconds", "ms")
    for offset, kind in enumerate(reversed(classes)):
        shown = [point for point in report["line"].get(kind, []) if point[0] < 0.5]
        axes.plot(*zip(*shown) if shown else ([], []), ".", markersize=2, color=f"C{len(classes) - 1 - offset}", label=kind, rasterized=True)
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    yield f"priority-{report['part']}-line.svg", axes


_PICTURES = {"chaining": _chaining, "uplink": _uplink, "failover": _failover, "lag": _lag, "disturbance": _disturbance,
             "leadership": _leadership,
             "priority": _priority}

if __name__ == "__main__":
    draw(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
