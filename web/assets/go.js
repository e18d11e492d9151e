// Where a page sends the browser. No other script changes the location, except for the query and the fragment.

// own returns the address of a page of this server. An address that leads anywhere else becomes the start page. The parser
// of URLs decides, as it does for the browser: in "//host", "/\host" and "/<tab>/host" it finds a host.
export function own(address) {
  try {
    const url = new URL(address, location.origin);
    if (url.origin === location.origin && url.protocol === location.protocol) { // the address of a blob has the origin of the page that made the blob
      return url.href;
    }
  } catch {
    // it is no address
  }
  return `${location.origin}/`;
}

// visit goes to a page of this server. comeBack does so without leaving the present page in the history.
export const visit = (address) => location.assign(own(address));
export const comeBack = (address) => location.replace(own(address));

// leave goes to a page that the API has named, usually of another server: the issuer's, or a payment provider's. It throws a
// TypeError if the protocol is neither https nor http.
export function leave(address) {
  const url = new URL(address);
  if (!["https:", "http:"].includes(url.protocol)) {
    throw new TypeError(`${url.protocol} is not the protocol of a page`);
  }
  location.assign(url);
}
