/** What menus that drop down have in common. */

/** A click elsewhere and Escape close the menu; returns how to stop listening. */
export function closeOutside(menu: { current: HTMLDetailsElement | null }): () => void {
  const close = (event: Event): void => {
    const element = menu.current;
    if (!element?.open) return;
    if (event instanceof KeyboardEvent ? event.key === "Escape" : !element.contains(event.target as Node))
      element.open = false;
  };
  addEventListener("pointerdown", close);
  addEventListener("keydown", close);
  return () => {
    removeEventListener("pointerdown", close);
    removeEventListener("keydown", close);
  };
}
