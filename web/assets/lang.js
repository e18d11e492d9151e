// The language of the page: the one that was chosen on an earlier visit, or else the first of the browser's that the
// page has. This script is not a module, so that it runs before the first paint, and nothing is painted in the wrong
// language.
{
  const page = document.documentElement;
  const offered = page.dataset.languages.split(" ");
  let chosen = null;
  try {
    chosen = localStorage.getItem("language");
  } catch {
    // The browser stores nothing.
  }
  const wanted = [chosen, ...navigator.languages].map((tag) => tag?.split("-")[0]);
  page.lang = wanted.find((language) => offered.includes(language)) ?? page.lang;
}
