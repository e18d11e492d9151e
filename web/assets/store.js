// Storage in the browser. If the browser stores nothing, as in some private windows, values are kept in memory until the page is
// left.

const memory = new Map();

// prefix tells our keys from those of a shop on whose page this module runs.
const prefix = new URL(import.meta.url).origin === location.origin ? "" : "flashsale ";

// lasting keeps values until they are removed, passing at most until the tab is closed. Stored values survive a reload.
export const lasting = area("localStorage");
export const passing = area("sessionStorage");

// newKey makes an Idempotency-Key.
export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function area(name) {
  const at = (key) => `${name} ${key}`;
  return {
    read(key) {
      try {
        return JSON.parse(window[name].getItem(prefix + key));
      } catch {
        return memory.get(at(key)) ?? null;
      }
    },
    write(key, value) {
      memory.set(at(key), value);
      try {
        window[name].setItem(prefix + key, JSON.stringify(value));
      } catch {
        // memory has it
      }
    },
    remove(key) {
      memory.delete(at(key));
      try {
        window[name].removeItem(prefix + key);
      } catch {
        // it was only in memory
      }
    },
  };
}
