// Draws a chart when it comes into view, opens the cell that a link names. Needs vegaEmbed; touches no network.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("charts").textContent);
  const options = { actions: false, ast: true, renderer: "svg", config: data.config, mode: "vega-lite" };

  const draw = (box) => {
    const spec = data.specs[Number(box.dataset.chart)];
    return vegaEmbed(box.firstElementChild, { width: "container", ...spec }, options).then(
      () => { box.dataset.state = "drawn"; },
      (error) => {
        box.dataset.state = "failed";
        box.firstElementChild.textContent = "This chart could not be drawn; its numbers stand in the text.";
        console.error(error);
      },
    );
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        watcher.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "300px" });
  for (const box of document.querySelectorAll("[data-chart]")) watcher.observe(box);

  const cells = [...document.querySelectorAll("details.cell")];
  const openNamed = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id ? document.getElementById(id) : null;
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
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
