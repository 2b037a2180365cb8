"use strict";

// The page allows styles from this service's files, and from who knows its nonce. Bokeh makes style elements, from the
// moment it is loaded on: each is given the nonce as it is made, so that none has to be allowed unseen.

{
  const { nonce } = document.currentScript.dataset;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const element = create(name, options);
    if (element.localName === "style") element.nonce = nonce;
    return element;
  };
}
