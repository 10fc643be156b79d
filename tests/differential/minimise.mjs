// Makes a failing case small, greedily: whatever can be left out, is, as long as the case goes on failing.

// The same value with one thing less: an element or a field gone, or a part in place of the whole.
function* smaller(value) {
  if (value === null || typeof value !== 'object' || value instanceof Date || value._bsontype) return;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i += 1) yield [...value.slice(0, i), ...value.slice(i + 1)];
    for (let i = 0; i < value.length; i += 1) for (const inner of smaller(value[i])) yield [...value.slice(0, i), inner, ...value.slice(i + 1)];
    return;
  }
  const entries = Object.entries(value);
  for (let i = 0; i < entries.length; i += 1) yield Object.fromEntries([...entries.slice(0, i), ...entries.slice(i + 1)]);
  for (let i = 0; i < entries.length; i += 1) {
    for (const inner of smaller(entries[i][1])) yield Object.fromEntries([...entries.slice(0, i), [entries[i][0], inner], ...entries.slice(i + 1)]);
  }
  for (const [name, inner] of entries) if (name.startsWith('$') && inner !== null && typeof inner === 'object' && !Array.isArray(inner) && !inner._bsontype) yield inner;
  for (const [name, inner] of entries) if (name.startsWith('$') && Array.isArray(inner)) yield* inner;
}

// The smallest case that `fails` still says true of, within so many attempts. `parts` names what of it may shrink.
export async function minimise(failing, parts, fails, attempts = 1500) {
  let best = failing;
  let shrunk = true;
  while (shrunk && attempts > 0) {
    shrunk = false;
    // Documents go first, by halves, then one by one: every later attempt is cheaper for it.
    for (let size = Math.ceil((best.docs?.length ?? 0) / 2); size >= 1 && attempts > 0; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let i = 0; i < best.docs.length && attempts > 0;) {
        attempts -= 1;
        const candidate = { ...best, docs: [...best.docs.slice(0, i), ...best.docs.slice(i + size)] };
        if (await fails(candidate)) { best = candidate; shrunk = true; } else i += size;
      }
    }
    for (const part of parts) {
      let again = true;
      while (again && attempts > 0) {
        again = false;
        for (const value of smaller(best[part])) {
          if (attempts <= 0) break;
          attempts -= 1;
          const candidate = { ...best, [part]: value };
          if (await fails(candidate)) { best = candidate; again = shrunk = true; break; }
        }
      }
    }
  }
  return best;
}
