"""What every group of settings is: frozen, strict, with one door for values from outside."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import no_info_before_validator_function

from training.contract.errors import validated
from training.contract.values import SECRET_ADVICE, Finding, looks_secret

JsonScalar: TypeAlias = str | int | float | bool | None


def complaint(sentence: str) -> PydanticCustomError:
    """A finding in the form that pydantic takes from a validator."""
    return PydanticCustomError("contract", "{sentence}", {"sentence": sentence})


@dataclass(frozen=True)
class ListOf:
    """Marks a tuple that is a list in JSON, of `least` to `most` items; its length is checked before its items are."""

    items: str
    _: KW_ONLY
    most: int
    least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._as_tuple, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "minItems": self.least, "maxItems": self.most, "x-items": self.items}

    def _as_tuple(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            return value
        context = {"field_type": "List", "actual_length": len(value)}
        if len(value) > self.most:
            raise PydanticKnownError("too_long", {**context, "max_length": self.most})
        if len(value) < self.least:
            raise PydanticKnownError("too_short", {**context, "min_length": self.least})
        return tuple(value)


class Settings(BaseModel):
    """A frozen group of settings; `parse` is its door for values from outside, the constructor is for code."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    moved_settings: ClassVar[Mapping[str, str]] = {}
    """What to say about names that belong elsewhere."""

    @field_validator("*", mode="before")
    @classmethod
    def _as_json_means_it(cls, value: object) -> object:
        if looks_secret("", value):
            raise complaint(SECRET_ADVICE)
        # JSON has one kind of number: 1.0 is the whole number 1.
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        found = self.relations(self.model_dump(mode="json", warnings=False))
        if found:
            errors = [InitErrorDetails(type=complaint(text), loc=where, input=None) for where, text in found]
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self

    @classmethod
    def relations(cls, raw: Mapping[str, Any]) -> list[Finding]:
        """What is wrong between values, whatever is wrong with each by itself; `raw` may hold any JSON."""
        del raw
        return []

    @classmethod
    def parse(cls, obj: object) -> Self:
        """The settings from a decoded JSON object; raises ContractError with one line for each problem."""
        # Pydantic compares settings only once each is valid by itself; the user wants to see everything at once.
        return validated(cls, obj, cls.relations(obj) if isinstance(obj, dict) else [])
