// Random choices from a seed: the same seed gives the same cases, on every machine.

export class Draw {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  // A number in [0, 1): mulberry32.
  unit() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  // An integer from low to high, both included.
  int(low, high) {
    return low + Math.floor(this.unit() * (high - low + 1));
  }

  chance(probability) {
    return this.unit() < probability;
  }

  of(list) {
    return list[this.int(0, list.length - 1)];
  }

  // One of the functions of a table {weight: [f, …]} or list [[weight, f], …], called with the rest.
  weighted(list, ...args) {
    let left = this.unit() * list.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, f] of list) {
      left -= weight;
      if (left < 0) return f(...args);
    }
    return list[0][1](...args);
  }

  // Up to `most` different elements, at least `least`.
  some(list, least, most) {
    const rest = [...list];
    const out = [];
    for (let n = this.int(least, Math.min(most, list.length)); n > 0; n--) out.push(rest.splice(this.int(0, rest.length - 1), 1)[0]);
    return out;
  }

  many(least, most, make) {
    return Array.from({ length: this.int(least, most) }, (_, i) => make(i));
  }
}
