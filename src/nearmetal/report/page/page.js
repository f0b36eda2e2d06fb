// Opens folds, unpacks what lies in them, draws a chart when it comes into view. Touches no network.
"use strict";
(() => {
  let unpacked; // a promise of the page's charts, insides and drawing library, unpacked once
  const unpack = () => {
    unpacked ??= (async () => {
      const text = document.getElementById("packed").textContent;
      const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      const data = JSON.parse(await new Response(stream).text());
      const script = document.createElement("script");
      script.textContent = data.bundle;
      document.head.append(script);
      return data;
    })();
    return unpacked;
  };

  const draw = async (box) => {
    try {
      const data = await unpack();
      const options = { actions: false, ast: true, renderer: "svg", config: data.config, mode: "vega-lite" };
      const spec = data.specs[Number(box.dataset.chart)];
      await vegaEmbed(box.firstElementChild, { width: "container", ...spec }, options);
      box.dataset.state = "drawn";
    } catch (error) {
      box.dataset.state = "failed";
      box.firstElementChild.textContent = "This chart could not be drawn; its numbers stand in the text.";
      console.error(error);
    }
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "300px" });
  const watch = (within) => within.querySelectorAll("[data-chart]").forEach((box) => watcher.observe(box));
  watch(document);

  const fill = async (fold) => {
    for (const box of fold.querySelectorAll(":scope > [data-part]")) {
      const data = await unpack();
      if (!("part" in box.dataset)) continue; // filled meanwhile
      box.innerHTML = data.parts[Number(box.dataset.part)]; // this page's own, escaped when it was written
      delete box.dataset.part;
      watch(box);
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
