// The name of this tab: pairs are handed to a tab, and two tabs of one person get different ones.
// A tab that is loaded anew must find its name again, and a tab that was duplicated, with a copy of sessionStorage, must
// not have the other's. So the name is in sessionStorage only from the moment at which a page goes to that at which the
// next one comes: a tab that lives has none there to be copied. One that crashes loses its name, and its pairs run out.

const TAB_SLOT = "prefrl.tab";

function newId() {
  const source = globalThis.crypto;
  if (source && source.randomUUID) return source.randomUUID();
  const bytes = new Uint8Array(16); // randomUUID is missing on plain http beyond localhost
  if (source && source.getRandomValues) source.getRandomValues(bytes);
  else bytes.forEach((_, i) => { bytes[i] = Math.floor(Math.random() * 256); });
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

function takeName() {
  let name = null;
  try {
    name = sessionStorage.getItem(TAB_SLOT);
    sessionStorage.removeItem(TAB_SLOT);
  } catch { /* storage is closed to us: a reload gets a name of its own */ }
  return name || newId().replaceAll("-", "").slice(0, 16);
}

const tab = takeName();
window.addEventListener("pagehide", () => {
  try { sessionStorage.setItem(TAB_SLOT, tab); } catch { /* as above */ }
});
window.addEventListener("pageshow", (event) => { if (event.persisted) takeName(); }); // back from the browser's cache
