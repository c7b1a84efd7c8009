// The part of the Node interpreter that gives it new random numbers in a fork. Its
// text comes before that of node.js; both are one function.
'use strict';

// reseed replaces Math.random, whose state nothing can reach, by a generator
// (xoshiro128**) of the seed. Those who kept the old function keep the old numbers.
function reseed(seed) {
  const s = new Uint32Array(4);
  for (let i = 0; i < 4; i++) s[i] = parseInt(seed.slice(8 * i, 8 * i + 8), 16);
  s[0] |= 1; // not all may be zero
  const rotl = (x, k) => (x << k) | (x >>> (32 - k));
  const next = () => {
    const result = Math.imul(rotl(Math.imul(s[1], 5), 7), 9) >>> 0;
    const t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 11);
    return result;
  };
  Math.random = function random() {
    return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  };
  return { reseeded: ['Math.random', ...replaceCrypto()], failed: [] };
}

let replaced = false;

// replaceCrypto has the functions of the module crypto read the kernel's random
// numbers. OpenSSL's generator is copied by a fork with its state, and nothing in
// Node makes it forget that; keys and TLS still use it.
function replaceCrypto() {
  const names = ['crypto.randomBytes', 'crypto.randomFill', 'crypto.randomInt', 'crypto.randomUUID', 'crypto.getRandomValues'];
  if (replaced) return names;
  const crypto = require('crypto');
  const { fill, uuid } = kernelRandom();
  const later = (callback, make) => {
    if (callback === undefined) return make();
    if (typeof callback !== 'function') throw new TypeError('The "callback" argument must be of type function');
    const value = make();
    process.nextTick(callback, null, value);
    return undefined;
  };
  const size = (n) => {
    if (typeof n !== 'number' || !(n >= 0 && n <= 2147483647)) throw new RangeError(`The value of "size" is out of range. Received ${n}`);
    return n;
  };
  const part = (buffer, offset = 0, count = undefined) => {
    const all = ArrayBuffer.isView(buffer) ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new Uint8Array(buffer);
    const scale = buffer.BYTES_PER_ELEMENT || 1;
    const end = count === undefined ? all.length : (offset + count) * scale;
    if (!(offset >= 0) || offset * scale > all.length || end > all.length || end < offset * scale) throw new RangeError('The value of "offset" or "size" is out of range');
    return all.subarray(offset * scale, end);
  };
  crypto.randomBytes = function randomBytes(n, callback) {
    size(n);
    return later(callback, () => fill(Buffer.alloc(n)));
  };
  crypto.randomFillSync = function randomFillSync(buffer, offset, count) {
    fill(part(buffer, offset, count));
    return buffer;
  };
  crypto.randomFill = function randomFill(buffer, ...rest) {
    const callback = rest.pop();
    return later(callback, () => crypto.randomFillSync(buffer, ...rest));
  };
  crypto.randomInt = function randomInt(min, max, callback) {
    if (max === undefined || typeof max === 'function') [min, max, callback] = [0, min, max];
    if (!Number.isSafeInteger(min) || !Number.isSafeInteger(max)) throw new TypeError('The "min" and "max" arguments must be safe integers');
    const range = max - min;
    if (!(range > 0 && range <= 281474976710655)) throw new RangeError('The value of "max" is out of range');
    const most = 281474976710656 - (281474976710656 % range);
    return later(callback, () => {
      for (;;) {
        const n = fill(Buffer.alloc(6)).readUIntBE(0, 6);
        if (n < most) return min + (n % range);
      }
    });
  };
  crypto.randomUUID = uuid;
  const web = Object.getPrototypeOf(crypto.webcrypto);
  const values = function getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || array instanceof DataView || array instanceof Float32Array || array instanceof Float64Array || array.byteLength > 65536) {
      throw new DOMException('The array must be of integers, and of at most 65536 bytes', 'TypeMismatchError');
    }
    return crypto.randomFillSync(array);
  };
  for (const [name, value] of [['getRandomValues', values], ['randomUUID', uuid]]) {
    Object.defineProperty(web, name, { value, writable: true, enumerable: true, configurable: true });
  }
  require('module').syncBuiltinESMExports();
  replaced = true;
  return names;
}

// kernelRandom returns functions that need nothing but the kernel.
function kernelRandom() {
  const source = fs.openSync('/dev/urandom', 'r');
  const fill = (array) => {
    for (let at = 0; at < array.length;) at += fs.readSync(source, array, at, array.length - at, null);
    return array;
  };
  const uuid = function randomUUID() {
    const b = fill(Buffer.alloc(16));
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  };
  return { fill, uuid };
}
