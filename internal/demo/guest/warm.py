# A state that takes time to make and memory to hold: samples of a wave of an
# unknown period, with as much noise again. The plans have to predict its end.
import json
import os

rng = np.random.default_rng()
period = float(rng.uniform(50, 500))
chunk = 1 << 20
data = np.empty(MIB * chunk // 8)
for start in range(0, len(data), chunk):
    t = np.arange(start, start + chunk)
    data[start:start + chunk] = np.sin(2 * np.pi * t / period) + rng.normal(0, 0.5, chunk)
test = data[-(1 << 16):]
train = data[-(1 << 20) - len(test):-len(test)]


def finish(plan_name, prediction, note):
    """Keeps the outcome of a plan in variables, in the array and in files."""
    global plan, score
    plan = plan_name
    score = float(1 - ((test - prediction) ** 2).sum() / ((test - test.mean()) ** 2).sum())
    data[0] = score
    with open("/root/result.txt", "w") as f:
        f.write(f"{plan}\n{score}\n")
    np.save(f"/root/{plan}.npy", prediction[:1000])
    print(json.dumps({"plan": plan, "score": score, "note": note, "pid": os.getpid()}))


with open("/root/result.txt", "w") as f:
    f.write("nothing yet\n")
print(json.dumps({"numbers": len(data), "period": period, "first": float(data[0]), "pid": os.getpid()}))
