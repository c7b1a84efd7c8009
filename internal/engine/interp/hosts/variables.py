# The part of the Python interpreter that describes variables. Its text comes
# before that of python.py; both are one module.

import sys
import types

MAX_VARIABLES = 2000
MAX_REPR = 200  # characters of a variable's representation
MAX_NODES = 50000  # objects that are looked at for the digest of one variable
MAX_BYTES = 64 << 20  # bytes that are hashed for it


def short(text, most):
    if not isinstance(text, str):
        text = str(text)
    return text if len(text) <= most else text[:most] + "…"


def name_of(kind):
    """Returns the name of a class, with its module if that is not obvious."""
    try:
        module = str(kind.__module__)
        return short(kind.__name__ if module in ("builtins", "__main__") else module + "." + kind.__qualname__, MAX_REPR)
    except Exception:
        return "<a class without a name>"


class Variables:
    """Describes the user's variables, so that those of two forks can be compared."""

    def __init__(self, host):
        self.host = host

    def all(self):
        found, left, missing = [], MAX_FRAME // 2, object()
        for name in sorted(n for n in list(self.host.names) if isinstance(n, str)):
            if name.startswith("_") or name in self.host.own:
                continue
            value = self.host.names.get(name, missing)
            if value is missing:
                continue  # a thread of the user's has removed it
            one = self.describe(name, value)
            left -= len(json.dumps(one))
            if left < 0 or len(found) == MAX_VARIABLES:
                break
            found.append(one)
        return found

    def describe(self, name, value):
        out = {"name": short(name, MAX_REPR), "type": name_of(type(value))}
        digest = Digest()
        try:
            out["size"] = size_of(value)
            out["repr"] = self.repr(value)
            out["digest"] = digest.of(value)
            if digest.opaque:
                out["opaque"] = True
            if digest.partial:
                out["partial"] = True
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            out.setdefault("size", 0)
            out.setdefault("repr", "<%s>" % short(type(e).__name__, MAX_REPR))
            out["digest"], out["opaque"] = "", True
        return out

    def repr(self, value):
        import reprlib

        r = reprlib.Repr()
        r.maxstring = r.maxother = r.maxlong = MAX_REPR
        r.maxlevel = 4
        return short(" ".join(r.repr(value).split()), MAX_REPR)


def size_of(value):
    kind = type(value)
    try:
        if kind.__module__.partition(".")[0] == "pandas":
            usage = value.memory_usage(deep=False)
            return int(usage if isinstance(usage, int) else usage.sum())
        nbytes = getattr(value, "nbytes", None)
        if isinstance(nbytes, int) and not isinstance(value, type):
            return nbytes
    except Exception:
        pass
    return sys.getsizeof(value, 0)


class Digest:
    """A hash of a value that two processes with the same value agree on, as far as
    MAX_NODES and MAX_BYTES reach."""

    def __init__(self):
        import hashlib

        self.hash = hashlib.blake2b
        self.nodes, self.bytes = MAX_NODES, MAX_BYTES
        self.partial = False  # not all was looked at
        self.opaque = False  # something cannot be compared
        self.seen = {}

    def of(self, value):
        return self.part(value, 0).hex()

    def done(self, *parts):
        h = self.hash(digest_size=16)
        for p in parts:
            if isinstance(p, str):
                p = p.encode("utf-8", "surrogatepass")
            size = memoryview(p).nbytes
            self.bytes -= size
            if self.bytes < 0:
                self.partial = True
                p = bytes(memoryview(p)[:0])
            h.update(b"%d:" % size)
            h.update(p)
        return h.digest()

    def part(self, value, depth):
        self.nodes -= 1
        if self.nodes < 0 or depth > 100:
            self.partial = True
            return b"?"
        kind = type(value)
        if value is None or kind in (bool, int, float, complex):
            return self.done(kind.__name__, repr(value) if kind is not int else hex(value))
        if kind in (str, bytes, bytearray):
            return self.done(kind.__name__, value)
        if id(value) in self.seen:
            return b"@%d" % self.seen[id(value)][0]
        self.seen[id(value)] = len(self.seen), value  # which keeps it, and so its id, alive
        return self.container(value, kind, depth + 1)

    def container(self, value, kind, depth):
        label = kind.__module__ + "." + kind.__qualname__
        if kind in (list, tuple):
            return self.done(label, str(len(value)), *self.items(value, depth))
        if kind is dict:
            return self.done(label, str(len(value)), *sorted(self.pairs(value, depth)))
        if kind in (set, frozenset):
            return self.done(label, str(len(value)), *sorted(self.items(value, depth)))
        if isinstance(value, types.ModuleType):
            return self.done("module", value.__name__)
        if isinstance(value, (types.FunctionType, types.MethodType)):
            return self.function(value, depth)
        if isinstance(value, type):
            if value.__module__ != "__main__":
                return self.done("class", label, value.__module__, value.__qualname__)
            members = {k: v for k, v in vars(value).items() if k not in ("__dict__", "__weakref__", "__static_attributes__", "__firstlineno__", "__annotate_func__")}
            return self.done("class", value.__qualname__, self.part(members, depth), self.part(list(value.__bases__), depth))
        if isinstance(value, (staticmethod, classmethod)):
            return self.done(label, self.part(value.__func__, depth))
        if isinstance(value, property):
            return self.done(label, self.part([value.fget, value.fset, value.fdel], depth))
        special = self.array(value, kind, label, depth)
        if special is not None:
            return special
        return self.object(value, kind, label, depth)

    def items(self, values, depth):
        found = []
        for v in values:
            if self.nodes < 0:
                self.partial = True
                break
            found.append(self.part(v, depth))
        return found

    def pairs(self, values, depth):
        found = []
        for k, v in dict.items(values):
            if self.nodes < 0:
                self.partial = True
                break
            found.append(self.part(k, depth) + self.part(v, depth))
        return found

    def function(self, value, depth):
        if isinstance(value, types.MethodType):
            return self.done("method", self.part(value.__func__, depth), self.part(value.__self__, depth))
        if value.__module__ != "__main__":
            return self.done("function", str(value.__module__), value.__qualname__)
        cells = []
        for c in value.__closure__ or ():
            try:
                cells.append(c.cell_contents)
            except ValueError:
                cells.append("empty cell")
        return self.done("function", value.__qualname__, self.code(value.__code__, depth),
                         self.part([value.__defaults__, value.__kwdefaults__, cells], depth))

    def code(self, code, depth):
        consts = [self.code(c, depth) if isinstance(c, types.CodeType) else self.part(c, depth) for c in code.co_consts]
        return self.done("code", code.co_code, repr((code.co_names, code.co_varnames, code.co_freevars)), *consts)

    def array(self, value, kind, label, depth):
        root = kind.__module__.partition(".")[0]
        if root == "numpy" and hasattr(value, "dtype") and hasattr(value, "tobytes"):
            if value.dtype.hasobject:
                return self.done(label, str(value.dtype), repr(value.shape), self.part(value.ravel().tolist(), depth))
            if value.nbytes > self.bytes:
                self.partial = True
                value = value.ravel()[: self.bytes // max(1, value.itemsize)]
            return self.done(label, str(value.dtype), repr(value.shape), value.tobytes())
        if root == "pandas" and hasattr(value, "to_numpy"):
            axes = [list(a) for a in getattr(value, "axes", [])] if hasattr(value, "axes") else []
            if hasattr(value, "columns"):
                columns = [value.iloc[:, i].to_numpy() for i in range(len(value.columns))]
            else:
                columns = [value.to_numpy()]
            return self.done(label, self.part(axes, depth), *[self.part(c, depth) for c in columns])
        if root == "torch" and hasattr(value, "detach"):
            data = value.detach().cpu()
            try:
                return self.done(label, str(value.dtype), self.part(data.contiguous().numpy(), depth))
            except TypeError:
                return self.done(label, str(value.dtype), repr(tuple(data.shape)), self.part(data.tolist(), depth))
        return None

    def object(self, value, kind, label, depth):
        attributes = getattr(value, "__dict__", None)
        parts = [label]
        plain = False
        for base, view in ((dict, lambda v: sorted(self.pairs(v, depth))),
                           (list, lambda v: self.items(list.__iter__(v), depth)),
                           (tuple, lambda v: self.items(tuple.__iter__(v), depth)),
                           ((set, frozenset), lambda v: sorted(self.items(v, depth))),
                           (str, lambda v: [self.part(str.__str__(v), depth)]),
                           (int, lambda v: [self.part(int(v), depth)]),
                           (float, lambda v: [self.part(float(v), depth)])):
            if isinstance(value, base):
                parts.extend(view(value))
                plain = True
                break
        if isinstance(attributes, dict):
            parts.append(self.part(dict(attributes), depth))
            plain = True
        slots = [s for c in kind.__mro__ for s in as_tuple(c.__dict__.get("__slots__", ())) if s not in ("__dict__", "__weakref__")]
        if slots and kind.__module__ == "__main__":
            parts.append(self.part([getattr(value, s, None) for s in slots], depth))
            plain = True
        if plain and (kind.__module__ == "__main__" or isinstance(attributes, dict) and attributes):
            return self.done(*parts)
        return self.pickled(value, label, parts, plain)

    def pickled(self, value, label, parts, plain):
        import pickle

        limit = _Limit(min(self.bytes, 16 << 20))
        try:
            pickle.Pickler(limit, 4).dump(value)
            return self.done(label, b"".join(limit.parts))
        except _Full:
            self.partial = True
            return self.done(label, b"".join(limit.parts))
        except KeyboardInterrupt:
            raise
        except Exception:
            if not plain:
                self.opaque = True
            return self.done(*parts)


def as_tuple(slots):
    return (slots,) if isinstance(slots, str) else tuple(slots)


class _Full(Exception):
    pass


class _Limit:
    """A file that takes so many bytes and no more."""

    def __init__(self, left):
        self.parts, self.left = [], left

    def write(self, data):
        data = bytes(data)
        self.left -= len(data)
        if self.left < 0:
            raise _Full
        self.parts.append(data)
