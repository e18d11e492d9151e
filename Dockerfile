FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The build context has no .git, so the version comes from outside.
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$VERSION" -o /flashsale .

FROM gcr.io/distroless/static:nonroot
COPY --from=build /flashsale /flashsale
# A server on the container's loopback couldn't be reached. The operator's address stays there unless set.
ENV FLASHSALE_HTTP_ADDR=0.0.0.0:8080
EXPOSE 8080 9090
# No HEALTHCHECK: it would run inside, and this image has nothing but the server. Probe /readyz from outside.
ENTRYPOINT ["/flashsale"]
