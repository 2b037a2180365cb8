"use strict";

// Shows at once what was chosen, under an address that says no more than that. Without a script there is a button.

for (const form of document.querySelectorAll("form[data-filter]")) {
  form.addEventListener("change", () => form.requestSubmit());
  form.addEventListener("formdata", ({ formData }) => {
    for (const name of new Set(formData.keys())) {
      const chosen = formData.getAll(name).filter((value) => value !== "");
      formData.delete(name);
      for (const value of chosen) formData.append(name, value);
    }
  });
}
document.documentElement.classList.add("with-script");
