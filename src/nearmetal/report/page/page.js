// Unpacks what lies in folds when they are opened, and opens the fold that a link names. Touches no network.
"use strict";
(() => {
  let unpacked; // a promise of the contents of folds, unpacked once
  const unpack = () => {
    unpacked ??= (async () => {
      const text = document.getElementById("packed").textContent;
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      return JSON.parse(await new Response(stream).text());
    })();
    return unpacked;
  };

  const fill = async (fold) => {
    for (const box of fold.querySelectorAll(":scope > [data-part]")) {
      const parts = await unpack();
      if (!("part" in box.dataset)) continue; // filled meanwhile
      box.innerHTML = parts[Number(box.dataset.part)]; // this page's own, escaped when it was written
      delete box.dataset.part;
    }
  };
  const cells = [...document.querySelectorAll("details.cell")];
  for (const cell of cells) cell.addEventListener("toggle", () => { if (cell.open) fill(cell); });

  const openNamed = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id ? document.getElementById(id) : null;
    if (target instanceof HTMLDetailsElement) {
      for (let e = target; e; e = e.parentElement) if (e instanceof HTMLDetailsElement) e.open = true;
      target.scrollIntoView();
      target.querySelector("summary").focus({ preventScroll: true });
    }
  };
  addEventListener("hashchange", openNamed);
  openNamed();

  const all = document.getElementById("open-all");
  if (!all) return; // a page without cells
  all.hidden = cells.length === 0;
  all.addEventListener("click", () => {
    const open = all.getAttribute("aria-pressed") !== "true";
    for (const cell of cells) cell.open = open;
    all.setAttribute("aria-pressed", String(open));
    all.textContent = open ? "Close all" : "Open all";
  });
})();
