"use strict";
// Clips: which play, which are shown; the rank whose memory is shown.
{
  const grid = document.getElementById("cards"), rest = document.getElementById("rest");
  const cards = grid ? [...grid.querySelectorAll(".card")] : [];
  const first = cards.length;
  if (rest) {  // in a template, so that nothing is loaded for cards that are not shown
    const template = document.createElement("template");
    template.innerHTML = rest.textContent;
    cards.push(...template.content.querySelectorAll(".card"));
  }
  const texts = cards.map(card => card.querySelector(".words").textContent.toLowerCase());
  const more = document.getElementById("more");
  const filter = document.getElementById("filter");
  const count = document.getElementById("filter-count");
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const seen = "IntersectionObserver" in window && !still ? new IntersectionObserver(changes => {
    for (const {target, isIntersecting} of changes) {
      if (isIntersecting) target.play().catch(() => {}); else target.pause();
    }
  }) : null;
  let shown = first;

  // A long prompt is cut, with a button for the rest.
  function shorten(card) {
    const prompt = card.querySelector(".prompt");
    if (card.short || prompt.scrollHeight <= prompt.clientHeight + 2) return;
    card.short = true;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "whole prompt";
    button.addEventListener("click", () => { prompt.classList.add("whole"); button.remove(); });
    prompt.after(button);
  }

  function prepare(card) {
    const video = card.querySelector("video"), save = card.querySelector("a.save");
    card.ready = true;
    if (!video) return;
    if (save) save.href = video.src;
    if (still) video.autoplay = false;
    if (seen) seen.observe(video);
  }

  function show() {
    const words = (filter ? filter.value : "").toLowerCase().split(/\s+/).filter(Boolean);
    let fits = 0;
    cards.forEach((card, i) => {
      const fit = words.every(word => texts[i].includes(word));
      fits += fit;
      if (fit && fits <= shown) {
        if (!card.ready) prepare(card);
        grid.append(card);
      } else if (card.isConnected) {
        card.remove();
      }
    });
    for (const card of cards) if (card.isConnected) shorten(card);
    if (count) {
      count.value = words.length ? `${fits} of ${cards.length} clips` : `${cards.length} clips`;
    }
    if (more) {
      more.hidden = fits <= shown;
      more.textContent = `Show ${Math.min(shown * 3, fits - shown)} more of ${fits - shown}`;
    }
  }
  if (more) more.addEventListener("click", () => { shown *= 4; show(); });
  if (filter) filter.addEventListener("input", show);
  if (grid) show();

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  const choice = document.getElementById("memory-rank");
  if (choice) {
    choice.addEventListener("change", () => {
      for (const figure of document.querySelectorAll("[data-rank]")) {
        figure.hidden = figure.dataset.rank !== choice.value;
      }
    });
  }
}
