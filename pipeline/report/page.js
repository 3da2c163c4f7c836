
"use strict";
{
  // Search and filters of the rows, and the folder in commands. The page reads the same without it.
  const byId = (id) => document.getElementById(id);
  const form = byId("find");
  const rows = [...document.querySelectorAll("[data-fate]")];
  const kept = rows.map((row, at) => ({
    row,
    at,
    text: (row.textContent + " " + row.dataset.source).toLowerCase(),
    tokens: Number(row.dataset.tokens || 0),
    share: Number(row.dataset.trained || 0) / Math.max(1, Number(row.dataset.tokens || 0)),
  }));
  const orders = {
    stored: (a, b) => a.at - b.at,
    longest: (a, b) => b.tokens - a.tokens || a.at - b.at,
    shortest: (a, b) => a.tokens - b.tokens || a.at - b.at,
    trained: (a, b) => a.share - b.share || a.at - b.at,
  };
  const marks = (words) => {
    if (!window.Highlight || !CSS.highlights) return;
    const found = new Highlight();
    for (const row of words.length ? rows : []) {
      if (row.hidden) continue;
      // A word can span several tokens, so it is searched in the text of all of them together.
      const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
      const nodes = [];
      let text = "";
      while (walker.nextNode()) {
        nodes.push([walker.currentNode, text.length]);
        text += walker.currentNode.data.toLowerCase();
      }
      const place = (at) => {
        let low = 0;
        for (let high = nodes.length - 1; low < high; ) {
          const middle = (low + high + 1) >> 1;
          if (nodes[middle][1] <= at) low = middle;
          else high = middle - 1;
        }
        return [nodes[low][0], Math.min(at - nodes[low][1], nodes[low][0].length)];
      };
      for (const word of words) {
        for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(...place(at));
          const [node, end] = place(at + word.length - 1);
          range.setEnd(node, Math.min(end + 1, node.length));
          found.add(range);
        }
      }
    }
    CSS.highlights.set("found", found);
  };
  const show = () => {
    const wanted = Object.fromEntries(new FormData(form));
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of kept) {
      const { fate, source, split } = one.row.dataset;
      const fits =
        (!wanted.fate || fate === wanted.fate || (wanted.fate === "*" && fate !== "kept")) &&
        (!wanted.source || source === wanted.source) &&
        (!wanted.split || split === wanted.split) &&
        words.every((word) => one.text.includes(word));
      one.row.hidden = !fits;
      if (fits && words.length) one.row.open = true;
      shown += fits;
    }
    const order = orders[wanted.order] || orders.stored;
    byId("examples").append(...[...kept].sort(order).map((one) => one.row));
    byId("found").value = `${shown} of ${kept.length} on this page`;
    marks(words);
  };
  if (form) {
    form.hidden = false;
    let waiting;
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(show, 120);
    });
    form.addEventListener("reset", () => setTimeout(show));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      show();
    });
    show();
  }
  // A page that lies in its build knows the folder; a shell gets it in quotes where it needs them.
  if (location.protocol === "file:" && "inBuild" in document.documentElement.dataset) {
    const folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "") || "/";
    const quoted = /^[\w@%+=:,./-]+$/.test(folder) ? folder : "'" + folder.replaceAll("'", "'\"'\"'") + "'";
    for (const place of document.querySelectorAll("var.folder")) place.textContent = quoted;
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
}
