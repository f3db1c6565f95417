/** The API's description, drawn by Swagger UI. What is tried here is sent with the key of this tab, to this server alone. */
SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  filter: true,
  tryItOutEnabled: true,
  requestInterceptor: (request) => {
    const key = sessionStorage.getItem("fourfold.key");
    if (key && new URL(request.url, document.baseURI).origin === location.origin) request.headers.Authorization ??= `Bearer ${key}`;
    return request;
  },
});
