# What is in tables and figures, as clients of E2B's code interpreter read it: the columns of a DataFrame, and the lines,
# points, bars and slices of a figure. python.py comes after this text in the same module.


def described(value):
    """Returns the description of a table or a figure by media type, or nothing."""
    try:
        if is_table(value):
            return {"e2b/data": {str(name): [plain(v) for v in value[name].tolist()] for name in value.columns}}
        if is_figure(value):
            charts = [chart_of(axes) for axes in value.axes]
            if len(charts) > 1:
                title = value._suptitle.get_text() if getattr(value, "_suptitle", None) else ""
                return {"e2b/chart": {"type": "superchart", "title": title, "elements": charts}}
            if charts:
                return {"e2b/chart": charts[0]}
    except Exception:
        pass  # it is shown all the same
    return {}


def is_table(value):
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def plain(value):
    """Returns a value as JSON has it: times as text, and no number that is none."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return None if text == "NaT" else text
    if hasattr(value, "item"):  # a scalar of numpy
        return plain(value.item())
    return str(value)


def chart_of(axes):
    """Describes the plot in some axes."""
    chart = {"type": "unknown", "title": axes.get_title() or None, "elements": []}
    wedges = [p for p in axes.patches if type(p).__name__ == "Wedge"]
    if wedges:
        chart["type"] = "pie"
        chart["elements"] = [{"label": w.get_label(), "angle": round(float(abs(w.theta2 - w.theta1)), 4), "radius": float(w.r)} for w in wedges]
        return chart
    for name in ("x", "y"):
        label = getattr(axes, "get_%slabel" % name)()
        match = re.search(r"\(([^()]+)\)\s*$", label or "")
        chart[name + "_label"], chart[name + "_unit"] = label or None, match.group(1) if match else None
    bars = [c for c in axes.containers if type(c).__name__ == "BarContainer"]
    boxes = boxes_of(axes)
    points = [c for c in axes.collections if type(c).__name__ == "PathCollection"]
    if boxes:
        chart["type"], chart["elements"] = "box_and_whisker", boxes
    elif bars:
        chart["type"], chart["elements"] = "bar", [element for group in bars for element in bars_of(axes, group)]
    elif axes.lines or points:
        chart["type"] = "line" if axes.lines else "scatter"
        for line in axes.lines:
            xs, ys = line.get_xdata(), line.get_ydata()
            chart["elements"].append({"label": line.get_label(), "points": [[plain_number(x), plain_number(y)] for x, y in zip(xs, ys)]})
        for group in [] if axes.lines else points:
            chart["elements"].append({"label": group.get_label(), "points": [[plain_number(x), plain_number(y)] for x, y in group.get_offsets()]})
        for name in ("x", "y"):
            first = next((v for line in axes.lines for v in getattr(line, "get_%sdata" % name)()), None)
            ticks = getattr(axes, "get_%sticks" % name)()
            chart[name + "_scale"] = getattr(axes, "get_%sscale" % name)()
            if hasattr(first, "isoformat") or type(first).__name__ == "datetime64":
                chart[name + "_scale"] = "datetime"
                ticks = sys.modules["matplotlib.dates"].num2date(ticks)
            elif isinstance(first, str):
                chart[name + "_scale"] = "categorical"
            chart[name + "_ticks"] = [plain_number(v) for v in ticks]
            chart[name + "_tick_labels"] = [t.get_text() for t in getattr(axes, "get_%sticklabels" % name)()]
    return chart


def plain_number(value):
    if type(value).__name__ == "datetime64":
        return str(value)
    return plain(value)


def bars_of(axes, group):
    """Describes the bars of one group, which have their labels on one axis and their values on the other."""
    upright = getattr(group, "orientation", "vertical") != "horizontal"
    ticks = axes.get_xticks() if upright else axes.get_yticks()
    labels = [t.get_text() for t in (axes.get_xticklabels() if upright else axes.get_yticklabels())]
    at = {round(float(t), 6): label for t, label in zip(ticks, labels)}
    elements = []
    for bar in group:
        middle = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
        value = bar.get_height() if upright else bar.get_width()
        label = at.get(round(float(middle), 6)) or "%g" % middle
        elements.append({"label": label, "group": group.get_label(), "value": plain_number(value)})
    return elements


def boxes_of(axes):
    """Describes the boxes of box-and-whisker plots: each is a closed line or a patch with two whiskers, two caps and a median."""
    def spans(line):
        if type(line).__name__ == "PathPatch":
            points = line.get_path().vertices[:5]
            return [float(x) for x, _ in points], [float(y) for _, y in points]
        return [float(v) for v in line.get_xdata()], [float(v) for v in line.get_ydata()]

    lines = [line for line in axes.lines if len(line.get_xdata()) > 0]
    outlines = [p for p in axes.patches if type(p).__name__ == "PathPatch" and len(p.get_path().vertices) in (5, 6)]
    outlines += [line for line in lines if len(line.get_xdata()) == 5 and line.get_xdata()[0] == line.get_xdata()[-1] and line.get_ydata()[0] == line.get_ydata()[-1]]
    labels = [t.get_text() for t in axes.get_xticklabels()]
    boxes = []
    for i, outline in enumerate(outlines):
        xs, ys = spans(outline)
        left, right, low, high = min(xs), max(xs), min(ys), max(ys)
        ends, median, outliers = [low, high], None, []
        for line in lines:
            x, y = spans(line)
            if line is outline or not x or min(x) < left - 1e-9 or max(x) > right + 1e-9:
                continue
            if len(x) == 2 and x[0] == x[1]:
                ends += y
            elif len(x) == 2 and y[0] == y[1] and low <= y[0] <= high and abs(x[1] - x[0] - (right - left)) < 1e-9:
                median = y[0]
            elif line.get_linestyle() in ("None", "none", " ", ""):
                outliers += y
        boxes.append({
            "label": labels[i] if i < len(labels) else str(i + 1), "min": min(ends), "first_quartile": low, "median": median, "third_quartile": high,
            "max": max(ends), "outliers": outliers,
        })
    return boxes


