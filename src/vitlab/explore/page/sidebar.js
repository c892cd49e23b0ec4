// On narrow screens the controls open over the page from a button that stays at the top.
const by = (id) => document.getElementById(id);

export function openSidebar() {
  const set = (open) => {
    by("controls").classList.toggle("open", open);
    by("menu").setAttribute("aria-expanded", String(open));
  };
  by("menu").addEventListener("click", () => set(by("menu").getAttribute("aria-expanded") !== "true"));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || by("menu").getAttribute("aria-expanded") !== "true") return;
    set(false);
    by("menu").focus();
  });
}
