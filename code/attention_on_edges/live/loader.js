// The button that loads the live translator: until it is pressed, the page holds a picture and these lines.
(() => {
  "use strict";

  const { loadScript, make } = EdgewiseBase;

  for (const root of document.querySelectorAll(".edgewise-live:not([data-alive])")) {
    root.dataset.alive = "";
    const known = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    const wanted = location.hash.startsWith("#live?") && new URLSearchParams(location.hash.slice(6)).get("model");
    const restores = wanted in known.models;
    const bar = make(root, "p", { class: "bar start" });
    const choice = make(make(bar, "label", {}, "Model "), "select", { name: "model" });
    for (const [name, { label }] of Object.entries(known.models)) make(choice, "option", { value: name }, label);
    if (restores) choice.value = wanted;
    const button = make(bar, "button", { type: "button", class: "load" });
    const trouble = make(bar, "span", { role: "alert" });
    const offer = () => {
      const bytes = known.models[choice.value].bytes + known.bytes;
      button.textContent = `${restores ? "Open what the link shows" : "Load the translator"} (${(bytes / 1e6).toFixed(1)} MB)`;
    };
    const still = root.querySelector(".still");
    const open = async (event) => {
      trouble.textContent = "";
      button.disabled = true;
      try {
        if (!globalThis.EdgewiseTranslator) await loadScript(known.script);
        root.translator ??= new EdgewiseTranslator.Translator(root, known);
        await root.translator.open(choice.value);
        const byKeyboard = button.contains(document.activeElement) || event.detail === 0;
        button.remove();
        if (byKeyboard) root.querySelector("[name=text]").focus({ preventScroll: true });
      } catch (error) {
        trouble.textContent = `The translator cannot be loaded (${error.message}); the picture stays.`;
        button.disabled = false;
      }
    };
    choice.addEventListener("change", () => (button.isConnected ? offer() : open()));
    button.addEventListener("click", open);
    still.addEventListener("click", (event) => button.disabled || open(event));
    offer();
    if (restores) still.before(bar);  // the picture is not that of the link
  }
})();
