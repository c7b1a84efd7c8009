package demo

// plan is one way to predict the end of the wave. Its program runs in the inherited process, with
// the inherited variables of guest/warm.py.
type plan struct {
	name, what, program string
}

// plans reach different scores, so that one of them is the best. The program does not know which.
func plans() []plan {
	return []plan{
		{"mean", "the mean of all samples", `
finish("mean", np.full(len(test), train.mean()), "mean %.4f" % train.mean())`},
		{"last", "the last sample", `
finish("last", np.full(len(test), train[-1]), "last sample %.4f" % train[-1])`},
		{"line", "a straight line", `
slope, height = np.polyfit(np.arange(len(train)), train, 1)
finish("line", height + slope * np.arange(len(train), len(train) + len(test)), "slope %.1e" % slope)`},
		{"smooth", "the mean of the last 100 samples", `
finish("smooth", np.full(len(test), train[-100:].mean()), "mean %.4f" % train[-100:].mean())`},
		{"fourier", "the strongest wave in the spectrum", `
spectrum = np.log(np.abs(np.fft.rfft(train * np.hanning(len(train)))))
top = int(spectrum[1:].argmax()) + 1
left, middle, right = spectrum[top - 1:top + 2]
found = len(train) / (top + 0.5 * (left - right) / (left - 2 * middle + right))
phase = 2 * np.pi * np.arange(len(train) + len(test)) / found
waves = np.stack([np.sin(phase), np.cos(phase), np.ones(len(phase))], axis=1)
known = waves[:len(train)]
weights = np.linalg.solve(known.T @ known, known.T @ train)
finish("fourier", waves[len(train):] @ weights, "period %.3f, truly %.3f" % (found, period))`},
	}
}
