package interp_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/internal/engine/interp"
)

// TestPythonCharts describes what is in tables and figures.
func TestPythonCharts(t *testing.T) {
	program, _ := interp.ProgramOf(interp.Python)
	h := startCommand(t, program.Text, withLibraries(t))
	described := func(code, mime string) map[string]any {
		t.Helper()
		a := h.cell(code)
		if a.Error != nil || len(a.results) == 0 {
			t.Fatalf("%s\n%d results, %+v", code, len(a.results), a.Error)
		}
		var got map[string]any
		if err := json.Unmarshal(a.results[0][mime], &got); err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return got
	}
	data := described("import pandas as pd, datetime\npd.DataFrame({'a': [1, 2], 'b': [0.5, float('nan')], 'at': [datetime.datetime(2026, 1, 2), None], 'c': ['x', None]})", "e2b/data")
	want := map[string]any{"a": []any{1.0, 2.0}, "b": []any{0.5, nil}, "at": []any{"2026-01-02T00:00:00", nil}, "c": []any{"x", nil}}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("a table (-want +got):\n%s", diff)
	}
	element := func(chart map[string]any, i int) map[string]any {
		t.Helper()
		all, _ := chart["elements"].([]any)
		if len(all) <= i {
			t.Fatalf("there is no element %d in %v", i, chart)
		}
		return all[i].(map[string]any)
	}
	h.want("import matplotlib.pyplot as plt", "")
	line := described("plt.plot([0, 1], [2, 3], label='one'); plt.xlabel('Time (s)'); plt.title('T'); plt.show()", "e2b/chart")
	if line["type"] != "line" || line["title"] != "T" || line["x_unit"] != "s" || line["x_label"] != "Time (s)" || element(line, 0)["label"] != "one" {
		t.Errorf("%v", line)
	}
	if diff := cmp.Diff([]any{[]any{0.0, 2.0}, []any{1.0, 3.0}}, element(line, 0)["points"]); diff != "" {
		t.Error(diff)
	}
	if scatter := described("plt.scatter([1, 2], [3, 4]); plt.show()", "e2b/chart"); scatter["type"] != "scatter" || len(element(scatter, 0)["points"].([]any)) != 2 {
		t.Errorf("%v", scatter)
	}
	bar := described("plt.bar(['a', 'b'], [3, 4], label='g'); plt.show()", "e2b/chart")
	if diff := cmp.Diff(map[string]any{"label": "b", "group": "g", "value": 4.0}, element(bar, 1)); bar["type"] != "bar" || diff != "" {
		t.Errorf("%v %s", bar, diff)
	}
	pie := described("plt.pie([1, 3], labels=['a', 'b']); plt.show()", "e2b/chart")
	if diff := cmp.Diff(map[string]any{"label": "b", "angle": 270.0, "radius": 1.0}, element(pie, 1)); pie["type"] != "pie" || diff != "" {
		t.Errorf("%v %s", pie, diff)
	}
	box := described("plt.boxplot([[1, 2, 3, 4, 5], [2, 3, 4, 5, 60]], tick_labels=['a', 'b']); plt.show()", "e2b/chart")
	wantBox := map[string]any{"label": "a", "min": 1.0, "first_quartile": 2.0, "median": 3.0, "third_quartile": 4.0, "max": 5.0, "outliers": []any{}}
	if diff := cmp.Diff(wantBox, element(box, 0)); box["type"] != "box_and_whisker" || diff != "" {
		t.Errorf("%v %s", box, diff)
	}
	if diff := cmp.Diff([]any{60.0}, element(box, 1)["outliers"]); diff != "" {
		t.Error(diff)
	}
	if both := described("f, (a, b) = plt.subplots(1, 2)\na.plot([1])\nb.bar([1], [2])\nf", "e2b/chart"); both["type"] != "superchart" || element(both, 0)["type"] != "line" || element(both, 1)["type"] != "bar" {
		t.Errorf("%v", both)
	}
}
